-- Reservations.

local function open(r, k)
  local o = r.os[k]
  if o then return o end
  local v = get(r, 'o' .. k)
  local p, count
  o = { k = k, parts = {} }
  o.grant, o.print, o.at, o.margin, o.fin, o.lease, o.id, count, p = unpack_(F'reservation', v)
  for i = 1, count do
    local q, fl = {}
    q.id, q.n, q.ref, q.seq, fl, p = unpack_(F'part', v, p)
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
  r.put[f] = sub(b, 1, p) .. string.rep('\0', p - #b) .. pack(F'number', v) .. sub(b, p + 9)
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
  local out = { pack(F'reservation', o.grant, o.print, o.at, o.margin, o.fin, o.lease, #o.id, o.id, #o.parts) }
  for i, q in ipairs(o.parts) do
    out[i + 1] = pack(F'part', q.id, q.n, q.ref, q.seq, (q.held and 1 or 0) + (q.both and 2 or 0))
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
  if recovered(r, o.grant) == 0 then recovered(r, o.grant, 1, max(o.fin, r.ttl)) end
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

-- Returns where a part that was held counts from now on.
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
  return enter(r, st, s, at, max(st.peak, s and lateness(s) or 0), n)
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
  table.sort(gone, function(a, b) return a.fin < b.fin or a.fin == b.fin and a.id < b.id end)
  return gone, next
end

-- With this many ended holds, writing them down is cheaper than finding them again at the next
-- call.
local MANY = 16

-- Reports whether advancing the record for this caller is a change that must be kept, whatever the
-- decision.
local function strange(r, ss, now)
  local other = false
  for _, s in ipairs(ss) do
    local st = r.by[s.id]
    if st and st.kind == 1 and st.rate ~= s.rate then
      other, r.longer = true, r.longer or s.rate < st.rate -- what is used may count for longer
    end
  end
  if other then return true end
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
  for _, s in ipairs(ss) do
    local st = r.by[s.id]
    if st and st.kind == 1 and st.rate ~= s.rate then forgetPast(r, s.id) end
  end
  for i, o in ipairs(r.over) do
    local at = {}
    for k, q in ipairs(o.parts) do at[k] = { closePart(r, ss, q, q.n, o.fin) } end
    if #r.over - i < MOSTPAST and o.grant ~= NONE then remember(r, ss, o, at) end
    forget(r, o)
  end
  for _, s in ipairs(ss) do
    local st = r.by[s.id]
    if st then advance(r, st, s, now) end
  end
end
