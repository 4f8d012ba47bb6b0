-- Runs each command of the other script once, on a key that is no bucket's and that is deleted
-- afterwards. Returns what failed, one "COMMAND: error" each.
local wrong = {}
for _, c in ipairs({
  { 'TIME' },
  { 'HSET', KEYS[1], 'f', '' }, -- the first write: a full server refuses no other
  { 'PEXPIRE', KEYS[1], '1000' },
  { 'HGET', KEYS[1], 'f' },
  { 'HMGET', KEYS[1], 'f' },
  { 'HDEL', KEYS[1], 'f' },
}) do
  local res = redis.pcall(unpack(c))
  if type(res) == 'table' and res.err then wrong[#wrong + 1] = c[1] .. ': ' .. res.err end
end
return wrong
