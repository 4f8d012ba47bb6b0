-- One decision on the buckets KEYS. It reads everything, decides, and writes last. A refusal writes
-- nothing, unless advancing a record for this caller changes what others would find, or is much
-- work that others would have to do again.
--
-- It is the counterpart of internal/record, function by function: see there for what is not
-- explained here. Numbers are doubles. All stored numbers stay below 2^53. Where an intermediate
-- value may not, both sides of the comparison are far apart.
--
-- A bucket is a hash:
--   h            the header: format, flags, latest instant, instant until which the TTL is set;
--                if reservations are open (flag 1): their number, an instant before which no hold
--                ends, one after which none does;
--                if it is paused (flag 2): until when, and the reason;
--                then the limits, each with its identity and kind (+ 16 if units of it are held,
--                or may be given back; + 32 if a bucket's units were granted ahead).
--                A program that does not know all of this, flags included, must not guess
--   e<limit><n>  entry n of a rolling limit; the newest one is in the header instead
--   o<n>         open reservation n, counted from 1 without gaps
--   i<id>        the number of an open reservation
--   x<c>         the ends of 64 open reservations: those from 64c+1 on
--   u<limit><c>  what they hold of a limit; what is missing at the end is nothing
--   k            the key's parts, if the key itself is a digest
--
-- Expired entries of rolling limits: a call removes at most MOST of them, the oldest first, because
-- tens of thousands keep the server busy for a tenth of a second and more. The header says which
-- entry is the oldest. Those that are left still count as used, until later calls remove them. So
-- what a record says is used is never less than what is used.
--   A take that fits is granted. If it does not, and there are expired entries left in a limit that
-- does not let it pass, it is undecided: what was removed is written, and the caller sends the take
-- again. So a take is refused only by what really is used, and its wait is right. What remains of
-- a limit that lets a take pass may be more than the answer says.
--   Settlements remove at most MOST as well. A refund takes no units from expired entries. A peek
-- has no such bound, because it writes nothing and its answer is exact.
--
-- ARGV[1] is the operation, ARGV[2] the first bucket's request; wire.go describes both.
local call = redis.call
local op, blob = ARGV[1], ARGV[2]
local time = call('TIME')
local raw = time[1] * 1000000 + time[2]
local pack, unpack_ = struct.pack, struct.unpack
local MAX = 9007199254740991
local MOST = 1000

-- Returns the instant until which a key lives that is needed until need. It is later by a quarter
-- of the need, between a minute and a day, so that the TTL need not be set for each take.
local function keep(need)
  local slack = (need - raw) / 4
  if slack < 6e7 then slack = 6e7 elseif slack > 8.64e10 then slack = 8.64e10 end
  local ttl = math.floor(need + slack)
  if ttl > MAX then ttl = MAX end
  return ttl
end

-- A plain take from a bucket that has, and always had, one limit of kind bucket.
if op == 'l' then
  local head = call('HGET', KEYS[1], 'h')
  local id, n, eff, win, rate, scale, drain = unpack_('<c9xdddddd', blob, 2)
  local now, used, ttl, plain = raw, 0, 0, true
  if head then
    plain = false
    if #head == 59 then
      local ver, flags, last, t, i, u, at, r = unpack_('<BBddc9dddd', head)
      if ver == 2 and flags == 0 and i == id and r == rate then
        plain, ttl = true, t
        if last > now then now = last end
        used = u - (now - at) * drain
        if used < 0 then used = 0 end
      end
    end
  end
  if plain then
    if used > (eff - n) * scale then return { 0, now, head or '' } end
    used = used + n * scale
    if used > MAX then used = MAX end
    local need = now + used / drain
    local short = need > ttl
    if short then ttl = keep(need) end
    head = pack('<BBddc9dddd', 2, 0, now, ttl, id, used, now, rate, win)
    call('HSET', KEYS[1], 'h', head)
    if short then call('PEXPIRE', KEYS[1], math.ceil((ttl - raw) / 1000)) end
    return head
  end
end

-- A bucket's hash during this call: what the server has, and over it what was decided. Nothing is
-- written before flush, so that a call that fails before has done nothing. A request of a batch
-- sees what those before it decided as if they had been calls of their own.
local byte, sub, ceil, min = string.byte, string.sub, math.ceil, math.min
local budget = op == 'p' and math.huge or MOST -- entries that this call may still remove
local cells = {} -- of the call, in the order of KEYS

local function cell(i)
  local c = cells[i]
  if not c then
    local key = KEYS[i]
    c = { key = key, head = call('HGET', key, 'h'), put = false, cache = false, ttl = false, dirty = false, cleared = false }
    cells[i] = c
  end
  return c
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

-- A plain take from a bucket in which nothing is held, and whose limits are all in this request, in
-- this order. Returns the new header. Anything less common returns nothing, before anything was
-- changed, and takes the long way.
local function several(cell, blob)
  local head = cell.head
  local now, ttl, hp, size, ver, flags = raw, 0, 19, 0
  if head then
    local last
    ver, flags, last, ttl = unpack_('<BBdd', head)
    if ver ~= 2 or flags ~= 0 then return nil end
    if last > now then now = last end
    size = #head
  end
  local bp, need, k, any = 2, 0, 1, false
  local out, set, del = { '' }
  for _ = 1, byte(blob) do
    local id = sub(blob, bp, bp + 8)
    local kind = byte(blob, bp + 8)
    local has = size > hp and sub(head, hp, hp + 8) == id
    k = k + 1
    if kind == 1 then
      local n, eff, win, rate, scale, drain
      n, eff, win, rate, scale, drain, bp = unpack_('<dddddd', blob, bp + 10)
      local used = 0
      if has then
        local at, r, _
        used, at, r, _, hp = unpack_('<dddd', head, hp + 9)
        if r ~= rate then return nil end
        used = used - (now - at) * drain
        if used < 0 then used = 0 end
      end
      if n > 0 then
        any = true
        if n > eff or used > (eff - n) * scale then return nil end
        used = used + n * scale
        if used > MAX then used = MAX end
      end
      if used > 0 and now + used / drain > need then need = now + used / drain end
      out[k] = (has or n > 0) and pack('<c9dddd', id, used, now, rate, win) or ''
    elseif kind == 2 then
      local fl = byte(blob, bp + 9)
      local n, eff, win, join, margin
      n, eff, win, join, margin, bp = unpack_('<ddddd', blob, bp + 10)
      local used, first, tail, f, l, c, old, _ = 0, 1, 0, 0, 0, 0, 0
      if has then
        _, used, first, tail, f, l, c, old, hp = unpack_('<dddddddd', head, hp + 9)
        if first <= tail then
          if l + win <= now then -- all of it
            if first < tail then return nil end
            used, first = 0, tail + 1
          elseif first < tail and old + win <= now then
            local e, list, from, step = 'e' .. sub(id, 1, 8), {}, first, 2
            del = del or {}
            repeat
              if not list[first - from + 1] then -- more at a time, the more there are
                list, from = {}, first
                for i = first, min(first + min(step, budget - #del + 1), tail) - 1 do list[#list + 1] = e .. i end
                fields(cell, list)
                step = 4 * step
              end
              local gone
              _, old, gone = unpack_('<ddd', field(cell, list[first - from + 1]))
              if old + win > now or #del >= budget then break end
              used = used - gone
              if used < 0 then used = 0 end
              del[#del + 1] = e .. first
              first = first + 1
            until first == tail
          end
        end
      end
      if n > 0 then
        any = true
        if used + n > eff then return nil end
        used = used + n
        local at = now
        if fl == 0 then at = now + margin end
        local joined = false
        if first <= tail then
          if at < l then at = l end
          joined = at - f < join or at == f
        end
        if joined then
          l, c = at, c + n
          if c > MAX then c = MAX end
        else
          if first <= tail then
            set = set or {}
            set[#set + 1] = 'e' .. sub(id, 1, 8) .. tail
            set[#set + 1] = pack('<ddd', f, l, c)
            if first == tail then old = l end
          end
          tail, f, l, c = tail + 1, at, at, n
        end
      end
      if first <= tail then
        if c == 0 then return nil end -- an answer needs the newest entry with units that still count
        if l + win > need then need = l + win end
      end
      out[k] = (has or n > 0) and pack('<c9dddddddd', id, win, used, first, tail, f, l, c, old) or ''
    elseif kind == 3 then
      local fl = byte(blob, bp + 9)
      local n, eff, margin, s1, e1, s2, e2
      n, eff, margin, bp = unpack_('<ddd', blob, bp + 10)
      local count = byte(blob, bp) + 256 * byte(blob, bp + 1)
      local wp = bp + 2
      bp = wp + 16 * count
      local used, at, fin, nxt, aft = 0, 0, 0, 0, 0
      if has then
        used, at, fin, nxt, aft, hp = unpack_('<ddddd', head, hp + 9)
      end
      if (has or n > 0) and now >= fin then
        local s, e
        for i = 1, count do
          local a, z = unpack_('<dd', blob, wp + 16 * i - 16)
          if a <= now and now < z then s, e = a, z end
        end
        if not s then return nil end
        local carry = 0
        if fin > 0 and (s <= fin or s < aft) then carry = nxt end
        used, at, fin, nxt, aft = carry, s, e, 0, 0
      end
      if n > 0 then
        any = true
        if used + n > eff or now + margin >= fin then return nil end
        used = used + n
      end
      if nxt > 0 then return nil end
      if used > 0 and fin > need then need = fin end
      out[k] = (has or n > 0) and pack('<c9ddddd', id, used, at, fin, nxt, aft) or ''
    else
      return nil
    end
  end
  if not any or size >= hp then return nil end
  if need > ttl then
    ttl = keep(need)
    cell.ttl = ttl
  end
  out[1] = pack('<BBdd', 2, 0, now, ttl)
  cell.head, cell.dirty = table.concat(out), true
  if set or del then
    local put = cell.put or {}
    cell.put = put
    for i = 1, set and #set or 0, 2 do put[set[i]] = set[i + 1] end
    for i = 1, del and #del or 0 do put[del[i]] = false end
    budget = budget - (del and #del or 0)
  end
  return cell.head
end

if op == 'h' then
  local h = several(cell(1), blob)
  if h then
    flush(cells[1])
    return h
  end
end

-- A batch: requests of several callers on the buckets KEYS, decided in order. ARGV[2] has a group
-- after the other: its operation, how many requests of exactly this kind there are, how many
-- buckets they have, and per bucket its place in KEYS and the place in ARGV of what is asked of it;
-- but for plain takes of one bucket, also the places of the ID and of the further arguments.
--
-- If a request needs calendar windows that it did not bring, nothing at all is done.
local groups, place, done = blob, 1, 0 -- place is that of the first group that is not done; done, how many of its requests are
local short, others = {}, { 14, raw, '' } -- answers: per group, and after the first three those that are not in it
-- Plain takes that the short way cannot decide cost ten times as much, and a hundred times as one
-- of many that ask for the same. Nobody knows before, so only so many are decided; others are sent
-- again.
local longer = 100
local plans = {} -- of plain takes from one limit of kind bucket, by their place in ARGV

local function plan(a)
  local id, n, eff, win, rate, scale, drain = unpack_('<c9xdddddd', ARGV[a], 2)
  plans[a] = { id = id, win = win, rate = rate, drain = drain, step = n * scale, most = (eff - n) * scale }
  return plans[a]
end

-- Plain takes from a bucket that has, and always had, one limit of kind bucket: see op 'l'. Returns
-- the answer of their group, or nothing if this is another bucket.
local function plainTakes(c, q, count)
  local used, now, ttl, head = 0, raw, 0, c.head
  if head then
    if #head ~= 59 then return nil end
    local ver, flags, last, t, i, u, at, r = unpack_('<BBddc9dddd', head)
    if ver ~= 2 or flags ~= 0 or i ~= q.id or r ~= q.rate then return nil end
    if last > now then now = last end
    used, ttl = u - (now - at) * q.drain, t
    if used < 0 then used = 0 end
  end
  local before, k, step, most, drain = used, 0, q.step, q.most, q.drain
  while k < count and used <= most do
    used, k = used + step, k + 1
    if used > MAX then used = MAX end
    if now + used / drain > ttl then
      ttl = keep(now + used / drain)
      c.ttl = ttl
    end
  end
  if k > 0 then c.head, c.dirty = pack('<BBddc9dddd', 2, 0, now, ttl, q.id, used, now, q.rate, q.win), true end
  return pack('<BddH', 1, before, now, k)
end

-- Carries out groups from place on. It returns at one that takes the long way.
local function shortWay()
  while place <= #groups do
    local kind, count, n, k, a, p = unpack_('<c1HBHH', groups, place)
    local answer
    if kind == 'l' then
      answer = plainTakes(cells[k], plans[a] or plan(a), count)
      if not answer then return end
    elseif kind == 'h' then
      while done < count do
        local h = several(cells[k], ARGV[a])
        if not h then return end
        done = done + 1
        others[#others + 1] = h
      end
      answer, done = pack('<BH', 0, count), 0
    else
      return
    end
    short[#short + 1] = answer
    place = p
  end
end

-- Writes what the batch decided, and returns its answer. If a write fails after another one, nobody
-- knows what was done.
local function ended()
  local ok, err = pcall(function()
    for i = 1, #cells do flush(cells[i]) end
  end)
  if not ok and not wrote then error(err, 0) end
  if not ok then return { 15, raw, type(err) == 'table' and err.err or tostring(err) } end
  others[3] = table.concat(short)
  return others
end

if op == 'm' then
  for i = 1, #KEYS do cell(i) end
  shortWay()
  if place > #groups then return ended() end
end

-- The long way: any operation, any record.
local floor, max = math.floor, math.max
local asked = {} -- instants whose calendar windows are unknown; if there are any, nothing is written
local id = '' -- of the request
local now = raw -- the instant of the decision
local rs, sss, keys = {}, {}, {} -- per bucket: its record, what is asked of it, the key's parts
local res -- the answer

local function gcd(a, b)
  while b > 0 do a, b = b, a % b end
  return a
end

local function get(r, f)
  local v = r.put[f]
  if v == nil then v = field(r.cell, f) end
  return v
end

-- Requests and records.

local function specs(b)
  local ss, p = { by = {} }, 2
  for j = 1, byte(b) do
    local s = {}
    s.id, s.kind, s.fl, p = unpack_('<c8BB', b, p)
    if s.kind == 1 then
      s.n, s.eff, s.win, s.rate, s.scale, s.drain, p = unpack_('<dddddd', b, p)
      s.margin = 0
    elseif s.kind == 2 then
      s.n, s.eff, s.win, s.join, s.margin, p = unpack_('<ddddd', b, p)
    elseif s.kind == 3 then
      local count
      s.n, s.eff, s.margin, count, p = unpack_('<dddH', b, p)
      s.wins = {}
      for i = 1, count do
        local a, z
        a, z, p = unpack_('<dd', b, p)
        s.wins[i] = { a, z }
      end
    else
      s.n, s.eff, p = unpack_('<dd', b, p)
    end
    ss[j], ss.by[s.id] = s, s
  end
  return ss, sub(b, p)
end

local function load(c)
  local r = { cell = c, last = 0, ttl = 0, m = 0, next = 0, ends = 0, ls = {}, by = {}, put = {}, os = {}, removed = 0 }
  local h = c.head
  if not h then
    r.new = true
    return r
  end
  local version, flags, last, ttl, p = unpack_('<BBdd', h)
  if version ~= 2 then return nil, 'DRAWGATE unknown record format ' .. version end
  if flags > 3 then return nil, 'DRAWGATE unknown record flags ' .. flags end
  r.last, r.ttl = last, ttl
  if flags % 2 == 1 then r.m, r.next, r.ends, p = unpack_('<ddd', h, p) end
  if flags >= 2 then r.pause, r.why, p = unpack_('<dHc0', h, p) end
  while p <= #h do
    local s, kind = { held = 0, loose = 0, peak = 0, used = 0, ahead = 0 }
    s.id, kind, p = unpack_('<c8B', h, p)
    s.kind = kind % 16
    if kind >= 64 then
      return nil, 'DRAWGATE unknown kind of limit ' .. kind
    elseif s.kind == 1 then
      s.used, s.at, s.rate, s.win, p = unpack_('<dddd', h, p)
      s.drain = gcd(s.rate, s.win)
      s.scale, s.drain = s.win / s.drain, s.rate / s.drain
    elseif s.kind == 2 then
      s.win, s.used, s.head, s.tail, s.first, s.lst, s.n, s.old, p = unpack_('<dddddddd', h, p)
    elseif s.kind == 3 then
      s.used, s.at, s.fin, s.nxt, s.aft, p = unpack_('<ddddd', h, p)
    elseif s.kind ~= 4 then
      return nil, 'DRAWGATE unknown kind of limit ' .. kind
    end
    if kind % 32 >= 16 then s.held, s.loose, s.peak, p = unpack_('<ddd', h, p) end
    if kind >= 32 then s.ahead, p = unpack_('<d', h, p) end
    r.ls[#r.ls + 1], r.by[s.id] = s, s
  end
  return r
end

-- Limits of kind calendar.

local function window(s, t)
  for _, w in ipairs(s.wins) do
    if w[1] <= t and t < w[2] then return w[1], w[2] end
  end
  local first = s.wins[1][1]
  if t < first and first <= now then
    -- A hold ended in a window that is long over. It does not matter which one, as long as it ends
    -- where the known ones start: a margin that reaches into the known ones is at most half a
    -- window, so then this is the one before.
    return t, first
  end
  asked[#asked + 1] = t
  return t, t + 1
end

local function roll(st, s, now)
  local a, z = window(s, now)
  local carry = 0
  if st.fin > 0 and (a <= st.fin or a < st.aft) then carry = st.nxt end
  st.at, st.fin, st.used, st.nxt, st.aft = a, z, carry, 0, 0
end

local function settleCalendar(st, q, d)
  local function add(v) return max(0, min(v + d, MAX)) end
  if q.ref == st.fin then
    st.used = add(st.used)
    if q.both then st.nxt = add(st.nxt) end
  elseif q.both and st.at <= q.ref and q.ref < st.fin then
    st.used = add(st.used)
  elseif q.ref == st.aft and st.nxt > 0 then
    st.nxt = add(st.nxt)
  end
end

-- Limits of kind bucket.

-- a * b / c rounded up, at most MAX. It splits a into digits of seven bits: no double rounds as
-- long as b and c are below 2^45, which is a year in µs.
local function mulDivUp(a, b, c)
  local q, rest, digit = 0, 0, 2 ^ 49
  while digit >= 1 do
    local d = floor(a / digit)
    a = a - d * digit
    local x = rest * 128 + d * b
    rest = math.fmod(x, c)
    q = q * 128 + (x - rest) / c
    digit = digit / 128
  end
  if rest > 0 then q = q + 1 end
  return min(q, MAX)
end

local function rescale(used, from, to)
  if from == to or used == 0 then return used end
  local units = floor(used / from)
  return min(min(units * to, MAX) + mulDivUp(used - units * from, to, from), MAX)
end

local function adopt(st, s)
  st.used = rescale(st.used, st.scale, s.scale)
  st.rate, st.scale, st.drain = s.rate, s.scale, s.drain
  if st.peak > 0 then st.peak = max(st.peak, s.rate) end
end

local function leak(st, s, now)
  if s.rate < st.rate then adopt(st, s) end
  local dt = now - st.at
  if dt > 0 then
    st.used = max(0, st.used - dt * st.drain)
    st.at = now
  end
end

local function drain(st, s, now)
  if not s then
    st.at = max(st.at, now)
    return
  end
  if s.rate ~= st.rate then
    leak(st, s, now)
    local old = st.rate
    adopt(st, s)
    if st.ahead > now and st.rate > old then
      st.used = min(st.used + mulDivUp(st.ahead - now, st.rate - old, st.win / st.scale), MAX)
    end
    return
  end
  local dt = now - st.at
  if dt > 0 then
    st.used = max(0, st.used - dt * st.drain)
    st.at = now
  end
end

-- The most that may drain in so many µs.
local function drained(st, dt)
  local per = st.win / st.scale
  if st.peak <= st.rate then return dt * (st.rate / per) end
  return mulDivUp(dt, st.peak, per)
end

local function spared(st, parts, at)
  if st.ahead <= at then return parts end
  return max(0, parts - drained(st, st.ahead - at))
end

local function settleBucket(st, q, n)
  if n >= q.n then
    st.used = min(st.used + min((n - q.n) * st.scale, MAX), MAX)
    return
  end
  local undrained = max(0, min(q.n * st.scale, MAX) - drained(st, max(0, max(now, st.ahead) - q.ref)))
  st.used = max(0, st.used - min((q.n - n) * st.scale, MAX, undrained))
end

-- Limits of kind rolling.

-- Reports whether the oldest entry of a rolling limit has expired.
local function oldestExpired(st, now)
  return st.head <= st.tail and (st.head < st.tail and st.old or st.lst) + st.win <= now
end

local function expire(r, st, now)
  if budget == 0 or not oldestExpired(st, now) then return end
  local e, names, i, step, _ = 'e' .. st.id, {}, 1, 2
  while st.head <= st.tail do
    local last, n, f = st.lst, st.n
    if st.head < st.tail then
      if not names[i] then -- more at a time, the more there are
        names, i = {}, 1
        for k = st.head, min(st.head + min(step, budget + 1), st.tail) - 1 do names[#names + 1] = e .. k end
        fields(r.cell, names)
        step = 4 * step
      end
      f = names[i]
      _, last, n = unpack_('<ddd', get(r, f))
      st.old = last
    end
    if budget == 0 or last + st.win > now then return end
    if f then r.put[f] = false end
    st.used = max(0, st.used - n)
    st.head = st.head + 1
    i, budget, r.removed = i + 1, budget - 1, r.removed + 1
  end
end

-- Removes all entries without reading them, if the header's have expired too and nothing was open
-- before this call: then write deletes the key and sets what this call has added, which is much
-- faster than field by field. A limit whose only entry is in the header is left as it is. A call
-- deletes one bucket of any size, and others as long as they have few entries in all.
local emptied = 0 -- entries of the buckets that this call deletes
local function clear(r, now)
  if r.m > 0 then return end
  local n = 0
  for _, st in ipairs(r.ls) do
    if st.kind == 2 and st.head < st.tail then
      if st.lst + st.win > now then return end
      n = n + st.tail - st.head
    end
  end
  if n == 0 or emptied > 0 and emptied + n > MOST then return end
  emptied = emptied + n
  for _, st in ipairs(r.ls) do
    if st.kind == 2 and st.head < st.tail then st.used, st.head = 0, st.tail + 1 end
  end
  r.cleared = true
end

local function settleRolling(r, st, q, n)
  local function set(was)
    local c = max(0, min(was + n - q.n, MAX))
    st.used = max(0, min(st.used + c - was, MAX))
    return c
  end
  if q.seq < st.head or q.seq > st.tail then return end
  if q.seq == st.tail then
    st.n = set(st.n)
  else
    local f = 'e' .. st.id .. q.seq
    local a, z, c = unpack_('<ddd', get(r, f))
    r.put[f] = pack('<ddd', a, z, set(c))
  end
end

-- One limit of any kind.

local function advance(r, st, s, now)
  if st.kind == 1 then
    drain(st, s, now)
  elseif st.kind == 2 then
    expire(r, st, now)
  elseif st.kind == 3 and s and now >= st.fin then
    roll(st, s, now)
  end
end

local function ensure(r, s, now)
  local st = r.by[s.id]
  if st then return st end
  st = { id = s.id, kind = s.kind, win = s.win, used = 0, held = 0, loose = 0, peak = 0, ahead = 0 }
  if s.kind == 1 then
    st.at, st.rate, st.scale, st.drain = now, s.rate, s.scale, s.drain
  elseif s.kind == 2 then
    st.head, st.tail, st.first, st.lst, st.n, st.old = 1, 0, 0, 0, 0, 0
  elseif s.kind == 3 then
    st.at, st.fin, st.nxt, st.aft = 0, 0, 0, 0
  end
  r.ls[#r.ls + 1], r.by[s.id] = st, st
  advance(r, st, s, now)
  return st
end

local function excess(st, s, now, n)
  if s.kind == 1 then
    return st.held + n > s.eff or st.used > (s.eff - st.held - n) * s.scale
  end
  local used = st.used
  if s.kind == 3 and now + s.margin >= st.fin then used = max(used, st.nxt) end
  return used + st.held + n > s.eff
end

local function room(st, s, now)
  if s.kind == 1 then
    return max(0, max(0, floor((s.eff * s.scale - st.used) / s.scale)) - st.held)
  end
  local used = st.used
  if s.kind == 3 and now + s.margin >= st.fin then used = max(used, st.nxt) end
  return max(0, s.eff - used - st.held)
end

-- enter counts n units. It returns what a settlement needs to find them again: an instant, the
-- entry's number, and whether two windows count them.
local function enter(r, st, s, at, margin, n)
  if n <= 0 then return 0, 0, false end
  n = min(n, MAX)
  if st.kind == 1 then
    st.used = min(st.used + min(n * st.scale, MAX), MAX)
    return at, 0, false
  elseif st.kind == 2 then
    at = at + margin
    st.used = min(st.used + n, MAX)
    if st.head <= st.tail then
      at = max(at, st.lst)
      if at - st.first < (s and s.join or 0) or at == st.first then
        st.lst, st.n = at, min(st.n + n, MAX)
        return st.first, st.tail, false
      end
      r.put['e' .. st.id .. st.tail] = pack('<ddd', st.first, st.lst, st.n)
      if st.head == st.tail then st.old = st.lst end
    end
    st.tail = st.tail + 1
    st.first, st.lst, st.n = at, at, n
    return at, st.tail, false
  elseif st.kind == 3 then
    if at >= st.fin and s then roll(st, s, at) end
    if at >= st.fin then
      st.nxt = min(st.nxt + n, MAX)
      st.used, st.at, st.fin, st.aft = 0, at, at, max(st.aft, at + margin + 1)
      return at, 0, false
    end
    if at < st.at then return 0, 0, false end
    st.used = min(st.used + n, MAX)
    if at + margin < st.fin then return st.fin, 0, false end
    st.nxt = min(st.nxt + n, MAX)
    if st.aft == 0 and s then
      local _
      _, st.aft = window(s, st.fin)
    end
    return st.fin, 0, true
  end
  return 0, 0, false
end

-- Reservations.

local function open(r, k)
  local o = r.os[k]
  if o then return o end
  local v = get(r, 'o' .. k)
  local p, count
  o = { k = k, parts = {} }
  o.grant, o.print, o.at, o.margin, o.fin, o.lease, o.id, count, p = unpack_('<c8c8dddBIc0B', v)
  for i = 1, count do
    local q, fl = {}
    q.id, q.n, q.ref, q.seq, fl, p = unpack_('<c8dddB', v, p)
    q.held, q.both = fl % 2 == 1, fl >= 2
    o.parts[i] = q
  end
  r.os[k] = o
  return o
end

-- A list of numbers, one per open reservation, is kept in chunks, because the whole list (what they
-- hold, when they end) is needed often.
local CHUNK = 64

local function chunk(r, name, k)
  local c = floor((k - 1) / CHUNK)
  return name .. c, get(r, name .. c) or '', 8 * (k - 1 - c * CHUNK)
end

local function set(r, name, k, v)
  local f, b, p = chunk(r, name, k)
  r.put[f] = sub(b, 1, p) .. string.rep('\0', p - #b) .. pack('<d', v) .. sub(b, p + 9)
end

-- Removes number k and all after it from a list.
local function cut(r, name, k)
  local f, b, p = chunk(r, name, k)
  if p == 0 then
    r.put[f] = false
  elseif #b > p then
    r.put[f] = sub(b, 1, p)
  end
end

-- The chunks of a list, one after the other. A limit's list may be short, or have zeros at its end.
local function list(r, name)
  local names, out = {}, {}
  for c = 0, ceil(r.m / CHUNK) - 1 do
    if r.put[name .. c] == nil and not (r.cell.cache and r.cell.cache[name .. c] ~= nil) then names[#names + 1] = name .. c end
  end
  fields(r.cell, names)
  for c = 0, ceil(r.m / CHUNK) - 1 do
    local b, n = get(r, name .. c) or '', 8 * min(CHUNK, r.m - c * CHUNK)
    out[c + 1] = sub(b, 1, n) .. string.rep('\0', n - #b)
  end
  return table.concat(out)
end

-- Puts a reservation into the lists, at its number. before is the reservation that had the number.
local function enlist(r, o, before)
  set(r, 'x', o.k, o.fin)
  local held = {}
  for _, q in ipairs(before and before.parts or {}) do
    if q.held and r.by[q.id].held > 0 then held[q.id] = 0 end
  end
  for _, q in ipairs(o.parts) do
    if q.held then held[q.id] = q.n end
  end
  for id, n in pairs(held) do set(r, 'u' .. id, o.k, n) end
end

-- Removes the last number, which is that of last, from the lists. Lists of limits that hold nothing
-- any more, now that o is closed, are dropped.
local function unlist(r, last, o)
  cut(r, 'x', r.m)
  if r.m % CHUNK == 1 then -- a limit's list may have zeros left there
    for _, st in ipairs(r.ls) do r.put['u' .. st.id .. (r.m - 1) / CHUNK] = false end
  end
  for _, q in ipairs(last.parts) do
    if q.held then cut(r, 'u' .. q.id, r.m) end
  end
  for _, q in ipairs(o.parts) do
    if q.held and r.by[q.id].held == 0 then
      for c = 0, ceil(r.m / CHUNK) - 1 do r.put['u' .. q.id .. c] = false end
    end
  end
end

local function save(r, o)
  local out = { pack('<c8c8dddBIc0B', o.grant, o.print, o.at, o.margin, o.fin, o.lease, #o.id, o.id, #o.parts) }
  for i, q in ipairs(o.parts) do
    out[i + 1] = pack('<c8dddB', q.id, q.n, q.ref, q.seq, (q.held and 1 or 0) + (q.both and 2 or 0))
  end
  r.os[o.k] = o
  r.put['o' .. o.k] = table.concat(out)
  r.put['i' .. o.id] = tostring(o.k)
end

local function find(r, id)
  if r.m == 0 then return nil end
  local k = get(r, 'i' .. id)
  return k and open(r, tonumber(k))
end

local function all(r)
  local names = {}
  for k = 1, r.m do
    if not r.os[k] and r.put['o' .. k] == nil then names[#names + 1] = 'o' .. k end
  end
  fields(r.cell, names)
  for k = 1, r.m do open(r, k) end
end

local function forget(r, o)
  local last = open(r, r.m)
  r.put['i' .. o.id] = false
  unlist(r, last, o)
  if last ~= o then
    last.k = o.k
    save(r, last)
    enlist(r, last, o)
  end
  r.put['o' .. r.m], r.os[r.m] = false, nil
  r.m = r.m - 1
  if r.m == 0 then
    r.next, r.ends = 0, 0
    for _, st in ipairs(r.ls) do st.peak = 0 end
  end
end

-- How long after their decision units may still arrive.
local function lateness(s)
  return s.fl % 2 == 0 and s.margin or 0
end

local function closePart(r, ss, q, n, at)
  local st, s = r.by[q.id], ss.by[q.id]
  if not st then return end
  if not q.held then
    st.loose = st.loose - q.n
    return
  end
  st.held = st.held - q.n
  if st.kind == 4 then return end
  if st.kind == 1 and s then
    leak(st, s, at)
  else
    advance(r, st, s, at)
  end
  -- For a limit that is not a bucket, peak is the largest margin of what was held: the holder may
  -- rely on it.
  enter(r, st, s, at, max(st.peak, s and lateness(s) or 0), n)
end

-- The reservations whose hold is over, the earliest first, and an instant before which none of the
-- others ends.
local function over(r, now)
  if r.next == 0 or now < r.next then return {}, r.next end
  local gone, names, ends, next = {}, {}, list(r, 'x'), 0
  for at = 0, r.m - 1, CHUNK do
    local n = min(CHUNK, r.m - at)
    local fins = { unpack_('<' .. string.rep('d', n), ends, 8 * at + 1) }
    for i = 1, n do
      local fin = fins[i]
      if fin <= now then
        gone[#gone + 1] = at + i
        if not r.os[at + i] then names[#names + 1] = 'o' .. at + i end
      elseif next == 0 or fin < next then
        next = fin
      end
    end
  end
  fields(r.cell, names)
  for i, k in ipairs(gone) do gone[i] = open(r, k) end
  table.sort(gone, function(a, b) return a.fin < b.fin end)
  return gone, next
end

-- With this many ended holds, writing them down is cheaper than finding them again at the next
-- call.
local MANY = 16

-- Reports whether advancing the record for this caller is a change that must be kept, whatever the
-- decision.
local function strange(r, ss, now)
  for _, s in ipairs(ss) do
    local st = r.by[s.id]
    if st and st.kind == 1 and st.rate ~= s.rate then return true end
  end
  for _, o in ipairs(r.over) do
    for _, q in ipairs(o.parts) do
      if not ss.by[q.id] then return true end
    end
  end
  return #r.over > MANY
end

-- As MANY, for expired entries. Reading so few again costs a tenth of a millisecond.
local MANYREMOVED = 100

local function advanceAll(r, ss, now)
  now = max(now, r.last)
  r.last = now
  if r.pause and now >= r.pause then r.pause, r.why = nil, nil end
  clear(r, now)
  for _, o in ipairs(r.over) do
    for _, q in ipairs(o.parts) do closePart(r, ss, q, q.n, o.fin) end
    forget(r, o)
  end
  for _, s in ipairs(ss) do
    local st = r.by[s.id]
    if st then advance(r, st, s, now) end
  end
end

-- Writing and answering.

local function header(r, ss)
  local out, ls = { '' }, {}
  for _, s in ipairs(ss) do
    if r.by[s.id] then ls[#ls + 1] = r.by[s.id] end
  end
  for _, st in ipairs(r.ls) do
    if not ss.by[st.id] then ls[#ls + 1] = st end
  end
  out[1] = pack('<BBdd', 2, (r.m > 0 and 1 or 0) + (r.pause and 2 or 0), r.last, r.ttl)
  if r.m > 0 then out[2] = pack('<ddd', r.m, r.next, r.ends) end
  if r.pause then out[#out + 1] = pack('<dHc0', r.pause, #r.why, r.why) end
  for _, st in ipairs(ls) do
    local more = st.held ~= 0 or st.loose ~= 0 or st.peak ~= 0
    local ahead = st.ahead > r.last
    local kind = st.kind + (more and 16 or 0) + (ahead and 32 or 0)
    if st.kind == 1 then
      out[#out + 1] = pack('<c8Bdddd', st.id, kind, st.used, st.at, st.rate, st.win)
    elseif st.kind == 2 then
      out[#out + 1] = pack('<c8Bdddddddd', st.id, kind, st.win, st.used, st.head, st.tail, st.first, st.lst, st.n, st.old)
    elseif st.kind == 3 then
      out[#out + 1] = pack('<c8Bddddd', st.id, kind, st.used, st.at, st.fin, st.nxt, st.aft)
    else
      out[#out + 1] = pack('<c8B', st.id, kind)
    end
    if more then out[#out + 1] = pack('<ddd', st.held, st.loose, st.peak) end
    if ahead then out[#out + 1] = pack('<d', st.ahead) end
  end
  return table.concat(out)
end

local LONGEST = 33 * 24 * 3600 * 1e6 -- calendar.Longest: no calendar window is longer

-- The instant until which a limit's state matters.
local function until_(r, st)
  local need, from = 0, r.ends
  if st.kind == 1 then
    if st.used > 0 then need = st.at + ceil(st.used / st.drain) end
    if st.held > 0 then need = max(need, max(st.at, from) + ceil((st.used + st.held * st.scale) / st.drain)) end
  elseif st.kind == 2 then
    if st.head <= st.tail then need = st.lst + st.win end
    if st.held > 0 then need = max(need, max(from, st.lst) + 2 * st.win) end -- a margin is at most half a window
  elseif st.kind == 3 then
    if st.nxt > 0 and (st.aft == 0 or st.at == st.fin) then
      need = max(st.fin, st.aft) + LONGEST
    elseif st.nxt > 0 then
      need = st.aft
    elseif st.used > 0 then
      need = st.fin
    end
    if st.held > 0 then need = max(need, from + 2 * LONGEST) end
  end
  return need
end

local function write(r, ss, key)
  local need = r.ends
  if #r.ls > 16 and r.m == 0 then -- limits of old versions of the policy
    local ls = {}
    for _, st in ipairs(r.ls) do
      local old = not ss.by[st.id] and until_(r, st) <= r.last
      if old and st.kind == 2 then
        expire(r, st, r.last)
        old = st.head > st.tail
      end
      if old then r.by[st.id] = nil else ls[#ls + 1] = st end
    end
    r.ls = ls
  end
  for _, st in ipairs(r.ls) do need = max(need, until_(r, st)) end
  need = max(need, raw, r.pause or 0)
  local short = need > r.ttl or r.ttl - need > 3 * (need - raw) + 3.6e9
  local c = r.cell
  if r.cleared then
    short, r.new = true, true
    c.cleared, c.put = true, false
  end
  if short then
    r.ttl = keep(need)
    c.ttl = r.ttl
  end
  if r.new and key ~= '' then r.put.k = key end
  if c.put then
    for f, v in pairs(r.put) do c.put[f] = v end
  elseif next(r.put) then
    c.put = r.put
  end
  c.head, c.dirty = header(r, ss), true
end

-- The entries of a rolling limit that are needed to explain a decision: the oldest, as far as they
-- make room for n units; and if nothing of the newest one counts, those before it back to one that
-- does.
local function entries(r, st, over)
  local out, q = {}, st.head
  while over > 0 and q < st.tail do
    if q % 64 == 0 or q == st.head then
      local names = {}
      for i = q, min(q - q % 64 + 63, st.tail - 1) do names[#names + 1] = 'e' .. st.id .. i end
      fields(r.cell, names)
    end
    local v = get(r, 'e' .. st.id .. q)
    local _, _, n = unpack_('<ddd', v)
    out[#out + 1] = v
    over, q = over - n, q + 1
  end
  local back, n, p, _ = {}, st.n, st.tail - 1
  while n == 0 and p >= q do
    local v = get(r, 'e' .. st.id .. p)
    _, _, n = unpack_('<ddd', v)
    back[#back + 1] = v
    p = p - 1
  end
  for i = #back, 1, -1 do out[#out + 1] = back[i] end
  return table.concat(out)
end

-- What a caller needs to explain a bucket: header, entries, until when and how many units are held,
-- and the number of open reservations.
local function view(r, ss, refused, leased)
  local es, us = {}, {}
  for j, s in ipairs(ss) do
    local st = r.by[s.id]
    if st and st.held > 0 and (refused or st.kind ~= 3) then
      if #us == 0 then us[1] = list(r, 'x') end
      us[#us + 1] = string.char(j) .. list(r, 'u' .. st.id)
    end
    if st and st.kind == 2 and st.head <= st.tail then
      local over, n = 0, leased and min(s.n, 1) or s.n
      if refused and n > 0 and n <= s.eff then over = st.used + st.held + n - s.eff end
      local e = entries(r, st, over)
      if e ~= '' then es[#es + 1] = string.char(j) .. e end
    end
  end
  return { header(r, ss), es, us, r.m }
end

-- Corrections of what was taken.

-- Corrects one part of a reservation: n units of it were used.
local function settlePart(r, ss, q, n)
  local st = r.by[q.id]
  if q.held then
    closePart(r, ss, q, n, now)
  elseif st then
    st.loose = st.loose - q.n
    if st.kind == 1 then
      settleBucket(st, q, n)
    elseif st.kind == 2 then
      settleRolling(r, st, q, n)
    elseif st.kind == 3 then
      settleCalendar(st, q, n - q.n)
    end
  end
end

local function settle(grant, cancel)
  local found = false
  for i, r in ipairs(rs) do
    local o = find(r, id)
    if o and o.grant == grant then
      found, r.dirty = true, true
      for _, q in ipairs(o.parts) do
        local n, s = q.n, sss[i].by[q.id]
        if cancel then
          n = 0
        elseif s and s.n >= 0 then
          n = s.n
        end
        settlePart(r, sss[i], q, n)
      end
      forget(r, o)
    end
  end
  return found and 5 or 6
end

local function renew(grant, hold)
  local found, kept, first = false, false, 0
  for _, r in ipairs(rs) do
    local o = find(r, id)
    if o and o.grant == grant then
      if o.lease % 2 == 1 and r.pause then kept = true end -- a lease ends while one of its buckets is paused
      if first == 0 or o.fin < first then first = o.fin end
    end
  end
  if kept then
    res[3] = first
    return 12
  end
  for _, r in ipairs(rs) do
    local o = find(r, id)
    if o and o.grant == grant then
      found, r.dirty = true, true
      o.fin = max(o.fin, now + hold)
      r.ends = max(r.ends, o.fin)
      save(r, o)
      set(r, 'x', o.k, o.fin)
      res[3] = max(res[3], o.fin)
    end
  end
  return found and 5 or 6
end

-- Pauses.

local function paused()
  for _, r in ipairs(rs) do
    if r.pause then return true end
  end
  return false
end

local function pause(hold, till, why)
  if hold > 0 then till = now + hold end
  local kept = true
  for _, r in ipairs(rs) do
    if till > max(now, r.pause or 0) then r.pause, r.why, r.dirty = till, why, true end
    res[3] = max(res[3], r.pause or 0)
    kept = kept and (r.pause or 0) > max(now, till)
  end
  return kept and 12 or 5
end

local function unpause(till)
  for _, r in ipairs(rs) do
    if r.pause == till then r.pause, r.why, r.dirty = nil, nil, true end
    res[3] = max(res[3], r.pause or 0)
  end
  return res[3] > 0 and 12 or 5
end

local function charge(at, notAfter)
  if notAfter > 0 and now > notAfter then return 11 end
  for i, r in ipairs(rs) do
    for _, s in ipairs(sss[i]) do
      if s.n > 0 and s.kind ~= 4 then
        local st = ensure(r, s, now)
        enter(r, st, s, s.kind == 3 and min(at, now) or now, 0, s.n)
        r.dirty = true
      end
    end
  end
  return 5
end

-- The units of open reservations that count already, by the entry's number or the end of the open
-- window in which they count.
local function reserved(r, st)
  local at = {}
  if st.loose == 0 then return at end
  all(r)
  for k = 1, r.m do
    for _, q in ipairs(r.os[k].parts) do
      if q.id == st.id and not q.held then
        local ref = st.kind == 2 and q.seq or q.ref
        if st.kind == 3 and q.both and st.at <= ref and ref < st.fin then ref = st.fin end
        at[ref] = (at[ref] or 0) + q.n
      end
    end
  end
  return at
end

local function refundRolling(r, st, n)
  local kept, back, seq = reserved(r, st), 0, st.tail
  while seq >= st.head and back < n do
    local f, a, z, c = 'e' .. st.id .. seq, 0, st.lst, st.n
    if seq < st.tail then a, z, c = unpack_('<ddd', get(r, f)) end
    if z + st.win <= now then break end -- it has expired, as all before it
    local d = min(n - back, max(0, c - (kept[seq] or 0)))
    if d > 0 then
      back = back + d
      if seq == st.tail then
        st.n = c - d
      else
        r.put[f] = pack('<ddd', a, z, c - d)
      end
    end
    seq = seq - 1
  end
  st.used = max(0, st.used - back)
  return back
end

local function refundOf(r, st, n)
  local back = 0
  if st.kind == 1 then
    local parts = min(spared(st, min(n * st.scale, MAX), now), max(0, st.used - min(st.loose * st.scale, MAX)))
    st.used = st.used - parts
    back = ceil(parts / st.scale)
  elseif st.kind == 2 then
    back = refundRolling(r, st, n)
  elseif st.kind == 3 then
    back = min(n, max(0, st.used - (reserved(r, st)[st.fin] or 0)))
    st.used = st.used - back
  end
  return back
end

-- seen is when somebody saw that the units are used, or 0.
local function refund(seen)
  local late = seen > 0 and now - seen > 2000000
  for i, r in ipairs(rs) do
    local got = {}
    for j, s in ipairs(sss[i]) do
      local st = r.by[s.id]
      local open = st and not late and (seen == 0 or st.kind ~= 3 or st.at <= seen)
      got[j] = open and s.n > 0 and refundOf(r, st, s.n) or 0
      if got[j] > 0 then r.dirty = true end
    end
    res[3 + i] = got
  end
  return 5
end

-- Reports whether a take cannot be decided yet: it does not fit, and this call may not remove any
-- more of the expired entries. A limit that could never let it pass is none that it has to fit.
local function undecided(lease)
  if budget > 0 then return false end
  for i, r in ipairs(rs) do
    for _, s in ipairs(sss[i]) do
      local st, n = r.by[s.id], lease == 1 and min(s.n, s.eff) or s.n
      if st and st.kind == 2 and n > 0 and n <= s.eff and oldestExpired(st, now) and excess(st, s, now, n) then return true end
    end
  end
  return false
end

local function fits(hold, lease)
  for i, r in ipairs(rs) do
    for _, s in ipairs(sss[i]) do
      if s.n > 0 then
        local st = r.by[s.id]
        s.got = s.n
        if s.kind == 4 and hold == 0 then
          return false
        elseif lease == 1 then
          local most = s.eff
          if st then most = room(st, s, now) end
          s.got = min(s.n, most)
          if most == 0 then return false end
        elseif not st then
          if s.n > s.eff then return false end
        elseif excess(st, s, now, s.n) then
          return false
        end
      end
    end
  end
  return true
end

-- A take whose grant is open already.

-- Looks up the grant that a take names. Returns 'mine' if it is open in all of its buckets, or a
-- code, and until when, from when and what is held.
local function known(grant, print)
  local was, same, from = 0, true, 0
  for i, r in ipairs(rs) do
    local o = find(r, id)
    if o then
      if o.grant ~= grant then
        res[3] = 0
        return 10
      end
      same = same and o.print == print
      if was == 0 or o.fin < res[3] then res[3] = o.fin end
      from = max(from, o.at)
      was = was + 1
      for _, q in ipairs(o.parts) do
        if sss[i].by[q.id] then sss[i].by[q.id].got = q.n end
      end
    end
  end
  if was == 0 then return nil end
  if was < #rs or not same then -- some of its buckets were settled or reset separately, or the take has another content
    res[3] = 0
    return 4
  end
  return 'mine', from
end

local given = false -- the take was allowed before, elsewhere: a pause does not refuse it
local undo -- restores what a refused replay gave back, after it was explained

-- The parts of an open reservation that a replay takes again: what ages, in limits that this caller
-- knows.
local function moving(r, ss)
  local o, i = find(r, id), 0
  return function()
    while true do
      i = i + 1
      local q = o.parts[i]
      if not q then return nil end
      if not q.held and ss.by[q.id] and r.by[q.id] then return q, ss.by[q.id], r.by[q.id] end
    end
  end
end

local function copy(t)
  local c = {}
  for k, v in pairs(t) do c[k] = v end
  return c
end

local function replay(from, notAfter)
  local aged = false
  for _, r in ipairs(rs) do
    local o = find(r, id)
    if now > o.at + o.margin then aged = true end
  end
  if not aged then return 3, from end
  local fin = res[3]
  res[3] = 0
  if notAfter > 0 and raw > notAfter then return 11 end
  if undecided(0) then return 13 end
  local before = {}
  for i, r in ipairs(rs) do
    before[i] = { put = copy(r.put), ls = {} }
    for k, st in ipairs(r.ls) do before[i].ls[k] = copy(st) end
  end
  local fits = given or not paused()
  for i, r in ipairs(rs) do
    for q in moving(r, sss[i]) do settlePart(r, sss[i], q, 0) end
  end
  for i, r in ipairs(rs) do
    for q, s, st in moving(r, sss[i]) do
      if excess(st, s, now, q.n) then fits = false end
    end
  end
  if not fits then
    undo = function()
      for i, r in ipairs(rs) do
        r.put = before[i].put
        for k, st in ipairs(r.ls) do
          for f, v in pairs(before[i].ls[k]) do st[f] = v end
        end
      end
    end
    return 2
  end
  for i, r in ipairs(rs) do
    local o = find(r, id)
    o.at, o.margin = now, MAX
    for q, s, st in moving(r, sss[i]) do
      q.ref, q.seq, q.both = enter(r, st, s, now, lateness(s), q.n)
      st.loose = min(st.loose + q.n, MAX)
      o.margin = min(o.margin, lateness(s))
    end
    save(r, o)
    r.dirty = true
  end
  res[3] = fin
  return 3, now
end

-- Granting ahead: see ahead.go.

local function fitsInWindow(st, s, at, free)
  if at < st.fin and st.used <= free and (at + s.margin < st.fin or st.nxt <= free) then return at end
  at = max(at, st.fin)
  local _, fin = window(s, st.fin)
  if st.nxt > free or at + s.margin >= fin then return nil end
  return at
end

-- The first instant from at on, but not after latest, at which a limit has room.
local function fitsFrom(r, st, s, at, latest)
  local free = s.eff - s.n - st.held
  if free < 0 then return nil end
  if s.kind == 1 then
    local over = st.used - free * s.scale
    if over > 0 then at = max(at, now + ceil(over / s.drain)) end
  elseif s.kind == 2 then
    local used, q = st.used, st.head
    while used > free and q <= st.tail and at <= latest do
      local last, n, _ = st.lst, st.n
      if q < st.tail then _, last, n = unpack_('<ddd', get(r, 'e' .. st.id .. q)) end
      used, at, q = used - n, max(at, last + st.win), q + 1
    end
  elseif s.kind == 3 then
    return fitsInWindow(st, s, at, free)
  end
  return at
end

local function earliest(at, hold, latest)
  local next = at
  for i, r in ipairs(rs) do
    for _, s in ipairs(sss[i]) do
      if s.n > 0 then
        local st = r.by[s.id]
        local t = at
        if s.n > s.eff or s.kind == 4 and hold == 0 then
          return nil
        elseif st then
          t = fitsFrom(r, st, s, at, latest)
        elseif s.kind == 3 then
          local _, fin = window(s, now)
          t = fitsInWindow({ fin = fin, used = 0, nxt = 0 }, s, at, s.eff - s.n)
        end
        if not t then return nil end
        next = max(next, t)
      end
    end
  end
  return next
end

-- The instant from which a take counts, or nil.
local function start(hold, ahead, lease)
  if fits(hold, lease) then return now end
  if ahead <= 0 or lease == 1 then return nil end
  local at, latest = now, now + ahead
  while at <= latest do
    local next = earliest(at, hold, latest)
    if not next then return nil end
    if next == at then
      for i in ipairs(rs) do
        for _, s in ipairs(sss[i]) do s.got = s.n end
      end
      return at
    end
    at = next
  end
  return nil
end

local function enterAhead(r, st, s, at, n)
  if at == now or st.kind == 2 or st.kind == 3 and at < st.fin then return enter(r, st, s, at, lateness(s), n) end
  if st.kind == 1 then
    st.used = min(max(st.used, min((at - now) * s.drain, MAX)) + min(n * st.scale, MAX), MAX)
    st.ahead = max(st.ahead, at)
    return at, 0, false
  end
  st.nxt = min(st.nxt + n, MAX)
  local _
  _, st.aft = window(s, st.fin)
  return st.aft, 0, false
end

local MAXOPEN = 10000 -- record.MaxOpen

local function take(grant, print, hold, notAfter, ahead, lease)
  if id ~= '' then
    local code, from = known(grant, print)
    if code == 'mine' then return replay(from, notAfter) end
    if code then return code end
    if notAfter > 0 and raw > notAfter then return 11 end
  end
  if undecided(lease) then return 13 end
  if not given and paused() then return 2 end
  local at = start(hold, ahead, lease)
  if not at then return 2 end
  local fin = 0
  if hold > 0 then
    for _, r in ipairs(rs) do
      if r.m >= MAXOPEN then return 8 end
    end
    fin = at + hold
  end
  res[3] = fin
  for i, r in ipairs(rs) do
    local parts, margin = {}, MAX
    for _, s in ipairs(sss[i]) do
      local n = s.got or 0
      if n > 0 then
        local st = ensure(r, s, now)
        local q = { id = s.id, n = n, ref = 0, seq = 0 }
        if s.kind == 4 or fin > 0 and (lease == 1 or s.fl % 2 == 1) then
          q.held, q.ref = true, s.kind < 4 and lateness(s) or 0
          st.held = min(st.held + n, MAX)
          if st.kind == 2 or st.kind == 3 then st.peak = max(st.peak, q.ref) end
        else
          q.ref, q.seq, q.both = enterAhead(r, st, s, at, n)
          margin = min(margin, lateness(s))
          if fin > 0 then st.loose = min(st.loose + n, MAX) end
        end
        parts[#parts + 1] = q
        r.dirty = true
      end
    end
    if fin > 0 then
      r.m = r.m + 1
      local o = { k = r.m, id = id, grant = grant, print = print, at = at, margin = margin, fin = fin, lease = lease, parts = parts }
      save(r, o)
      enlist(r, o)
      if r.next == 0 or fin < r.next then r.next = fin end
      if fin > r.ends then r.ends = fin end
      for _, q in ipairs(parts) do
        local st = r.by[q.id]
        if st.kind == 1 then st.peak = max(st.peak, st.rate) end
      end
      r.dirty = true
    end
  end
  return 1, at
end

-- The operations.

-- Decides a request. Returns its answer, or an error; and whether anything has to be written.
local function decide(op, cs, blobs, common)
  rs, sss, keys, given, undo, now = {}, {}, {}, false, nil, raw
  for i, c in ipairs(cs) do
    local err
    rs[i], err = load(c)
    if err then return nil, err end
    sss[i], keys[i] = specs(blobs[i])
    now = max(now, rs[i].last)
  end
  for i, r in ipairs(rs) do
    local next
    r.over, next = over(r, now)
    r.dirty = op ~= 'p' and strange(r, sss[i], now)
    r.next = next
    advanceAll(r, sss[i], now)
    r.dirty = r.dirty or op ~= 'p' and r.removed > MANYREMOVED
  end

  res = { 0, now, 0 }
  local leased = false -- a lease accepts any part
  local from = 0 -- a take's units count from then on
  if op == 't' then
    local grant, print, hold, notAfter, ahead, lease = '', '', 0, 0, 0, 0
    if common ~= '' then grant, print, hold, notAfter, ahead, lease = unpack_('<c8c8dddB', common) end
    given, lease = lease >= 2, lease % 2
    leased = lease == 1
    res[1], from = take(grant, print, hold, notAfter, ahead, lease)
  elseif op == 's' or op == 'x' then
    res[1] = settle(common, op == 'x')
  elseif op == 'r' then
    res[1] = renew(unpack_('<c8d', common))
  elseif op == 'c' then
    res[1] = charge(unpack_('<dd', common))
  elseif op == 'z' then
    local hold, till, p = unpack_('<dd', common)
    res[1] = pause(hold, till, sub(common, p))
  elseif op == 'u' then
    res[1] = unpause((unpack_('<d', common)))
  elseif op == 'b' then
    res[1] = refund((unpack_('<d', common)))
  else
    res[1] = 7
  end
  if #asked > 0 then return { 9, now, asked } end
  if op == 't' and res[1] < 4 or op == 'p' then
    for i, r in ipairs(rs) do
      local v = view(r, sss[i], res[1] == 2 or op == 'p', leased)
      if id ~= '' then
        local got = {}
        for j, s in ipairs(sss[i]) do got[j] = s.got or 0 end
        v[5] = got
      end
      res[3 + i] = v
    end
    if from and from > now then res[#res + 1] = from end -- it was granted ahead
  end
  if undo then undo() end
  for i, r in ipairs(rs) do
    if r.dirty or res[1] == 13 and r.removed > 0 then write(r, sss[i], keys[i]) end
  end
  return res
end

if op == 'm' then
  while place <= #groups do
    local kind, count, n, p = unpack_('<c1HB', groups, place)
    local cs, blobs, common, k, a = {}, {}, ''
    id = ''
    for i = 1, n do
      k, a, p = unpack_('<HH', groups, p)
      cs[i], blobs[i] = cells[k], ARGV[a]
    end
    local plain = kind == 'l' or kind == 'h'
    if plain then
      kind = 't'
    else
      k, a, p = unpack_('<HH', groups, p)
      id, common = ARGV[k], ARGV[a]
    end
    repeat
      local answer, err
      if plain and longer == 0 then
        answer = { 13, raw, 0 }
      else
        answer, err = decide(kind, cs, blobs, common)
        if plain then longer = longer - 1 end
      end
      if err then return redis.error_reply(err) end
      if #asked > 0 then return answer end
      done = done + 1
      others[#others + 1] = answer
    until done >= count or answer[1] ~= 1 -- those after it, of the same kind, get the same answer
    short[#short + 1] = pack('<BH', 0, done)
    place, done = p, 0
    shortWay()
  end
  return ended()
end

local blobs, common = { blob }, ''
if op == 'l' or op == 'h' then
  op = 't'
else
  id, common = ARGV[3], ARGV[4]
  for i = 2, #KEYS do blobs[i] = ARGV[3 + i] end
end
for i = 1, #KEYS do cell(i) end
local answer, err = decide(op, cells, blobs, common)
if err then return redis.error_reply(err) end
for i = 1, #cells do flush(cells[i]) end
return answer

