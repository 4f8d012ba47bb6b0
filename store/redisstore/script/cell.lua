-- A bucket's hash during this call: what the server has, and over it what was decided. Nothing is
-- written before flush, so that a call that fails before has done nothing. A request of a batch
-- sees what those before it decided as if they had been calls of their own.
local ceil, min, max = math.ceil, math.min, math.max
local budget = op == 'p' and math.huge or MOST -- entries that this call may still remove
local cells = {} -- of the call, in the order of KEYS

local function cell(i)
  local c = cells[i]
  if not c then
    local key = KEYS[i]
    local got = call('HMGET', key, 'h', 'g', 'l')
    c = {
      key = key, head = got[1], g = got[2], l = got[3],
      put = false, cache = false, ttl = false, dirty = false, cleared = false, lined = false,
    }
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

-- Returns until when a key has to live; false: long enough already. A line may need it for longer
-- than the record does, and then has a minute more, as a record has.
local function lives(c)
  local ttl = c.ttl
  if not c.l or #c.l < 10 or not ttl and not c.lined then return ttl end
  local _, till = unpack_(F'line', c.l)
  local has = ttl or 0
  if not ttl and c.head and #c.head >= 18 then _, _, _, has = unpack_(F'head', c.head) end
  if till > has and till < raw + 3.6e9 then return till + 6e7 end -- no ticket lives for an hour
  return ttl
end

-- Tells a waiter that units of a bucket may have come free. Nobody relies on it: a user without the
-- right to publish is no error.
local function announce(c, number)
  local prefix = string.match(c.key, '^(.*):[^:]*:[^:]*:[^:]*$')
  if prefix then redis.pcall('PUBLISH', prefix .. ':%line', number .. c.key) end
end

-- Writes a line of a bucket whose record stays as it is. A refusal is right without it: so it does
-- not fail if the server takes no writes.
local function flushLine(c)
  if not c.l then
    redis.pcall('HDEL', c.key, 'l')
    return
  end
  redis.pcall('HSET', c.key, 'l', c.l)
  local ttl = lives(c)
  if ttl then redis.pcall('PEXPIRE', c.key, ceil((ttl - raw) / 1000)) end
end

-- Writes what was decided. The first write fails if the server takes none at all, and then nothing
-- was done.
local wrote = false
local function flush(c)
  if not c.dirty then return c.lined and flushLine(c) end
  if c.lined or c.cleared and c.l then
    c.put = c.put or {}
    c.put.l = c.l
  end
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
  local ttl = lives(c)
  if ttl then call('PEXPIRE', c.key, ceil((ttl - raw) / 1000)) end
end
