-- A bucket's hash during this call: what the server has, and over it what was decided. Nothing is
-- written before flush, so that a call that fails before has done nothing. A request of a batch
-- sees what those before it decided as if they had been calls of their own.
local byte, ceil, min, max = string.byte, math.ceil, math.min, math.max
local budget = op == 'p' and math.huge or MOST -- entries that this call may still remove
local cells = {} -- of the call, in the order of KEYS

local function cell(i)
  local c = cells[i]
  if not c then
    local key = KEYS[i]
    local got = call('HMGET', key, 'h', 'g')
    c = { key = key, head = got[1], g = got[2], put = false, cache = false, ttl = false, dirty = false, cleared = false }
    cells[i] = c
  end
  return c
end

-- The instant of a decision about a record that was written last at an instant.
local function after(c, last)
  if last < raw then return raw end
  return c.dirty and last or last + STEP
end

local function fields(c, names) -- reads fields into the cache
  if c.cleared then return end
  c.cache = c.cache or {}
  for i = 1, #names, 1000 do
    local got = call('HMGET', c.key, unpack(names, i, min(i + 999, #names)))
    for j = 1, #got do c.cache[names[i + j - 1]] = got[j] end
  end
end

local function field(c, f)
  local v
  if c.put then v = c.put[f] end
  if v == nil and c.cleared then return false end
  if v == nil and c.cache then v = c.cache[f] end
  if v == nil then
    v = call('HGET', c.key, f)
    c.cache = c.cache or {}
    c.cache[f] = v
  end
  return v
end

-- Writes what was decided. The first write fails if the server takes none at all, and then nothing
-- was done.
local wrote = false
local function flush(c)
  if not c.dirty then return end
  if c.cleared then
    call('PEXPIRE', c.key, 0) -- deletes it, and needs no further right
    wrote = true
  end
  if c.put then
    local set, del = { 'h', c.head }, {}
    for f, v in pairs(c.put) do
      if v then
        set[#set + 1], set[#set + 2] = f, v
      else
        del[#del + 1] = f
      end
    end
    for i = 1, #set, 2000 do
      call('HSET', c.key, unpack(set, i, min(i + 1999, #set)))
      wrote = true
    end
    for i = 1, #del, 2000 do call('HDEL', c.key, unpack(del, i, min(i + 1999, #del))) end
  else
    call('HSET', c.key, 'h', c.head)
    wrote = true
  end
  if c.ttl then call('PEXPIRE', c.key, ceil((c.ttl - raw) / 1000)) end
end
