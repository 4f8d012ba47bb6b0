-- Runs each command of the other script once, on the key of no bucket, which is gone afterwards. Answers what went wrong, one "COMMAND: error" each.
local wrong = {}
for _, c in ipairs({
  { 'TIME' },
  { 'HSET', KEYS[1], 'f', '' }, -- the first that writes: a full server refuses no other
  { 'PEXPIRE', KEYS[1], '1000' },
  { 'HGET', KEYS[1], 'f' },
  { 'HMGET', KEYS[1], 'f' },
  { 'HDEL', KEYS[1], 'f' },
}) do
  local res = redis.pcall(unpack(c))
  if type(res) == 'table' and res.err then wrong[#wrong + 1] = c[1] .. ': ' .. res.err end
end
return wrong
