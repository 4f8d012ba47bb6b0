-- Reservations whose hold has ended: where their units count. The field p has their number,
-- and each with its size; see past.go in internal/record. Of a part of kind bucket, seq is the
-- rate, with which its units drain.
local MOSTPAST = 64
local PASTLIFE = 3.6e9

local function readPast(v)
  local list, p = {}, 2
  for _ = 1, byte(v) do
    local _, o, count, fl = nil, { parts = {} }
    _, o.grant, o.fin, o.id, count, p = unpack_(F'size ended', v, p)
    for i = 1, count do
      local q = {}
      q.id, q.n, q.ref, q.seq, fl, p = unpack_(F'part', v, p)
      for _, n in ipairs({ q.n, q.ref, q.seq }) do assert(n >= 0 and n <= MAX and n % 1 == 0) end
      q.both = fl == 2
      o.parts[i] = q
    end
    if o.fin > now then list[#list + 1] = o end
  end
  assert(p == #v + 1)
  return list
end

local function pastHolds(r)
  if not r.past then
    local v, read = get(r, 'p')
    if v then read, r.past = pcall(readPast, v) end
    if not read then r.past = {} end -- there is nothing, or it is damaged, and forgotten
  end
  return r.past
end

local function packPast(o)
  local parts = {}
  for i, q in ipairs(o.parts) do parts[i] = pack(F'part', q.id, q.n, q.ref, q.seq, q.both and 2 or 0) end
  local v = pack(F'ended', o.grant, o.fin, #o.id, o.id, #parts) .. table.concat(parts)
  return pack(F'size', #v + 2) .. v
end

local function keepPast(r)
  local out = {}
  for i, o in ipairs(r.past) do out[i] = packPast(o) end
  r.put.p = #out > 0 and string.char(#out) .. table.concat(out)
end

-- Adds one to those that are not read, which are many more bytes. Returns false if they have to be
-- read: it may be there, or they may be damaged.
local function append(r, o)
  local v = not r.past and get(r, 'p')
  if not v or #v < 30 or string.find(v, o.grant, 1, true) then return false end
  local count, p = byte(v), 2
  if count >= MOSTPAST then -- the first one goes
    count, p = count - 1, 2 + unpack_(F'size', v, 2)
    if count >= MOSTPAST or p > #v then return false end
  end
  r.put.p = string.char(count + 1) .. sub(v, p) .. packPast(o)
  return true
end

-- Until when a part counts whose hold is over; 0 if nothing of it could be given back.
local function counts(r, ss, q)
  local st, s = r.by[q.id], ss.by[q.id]
  if not st or q.n == 0 then return 0 end
  if st.kind == 1 then
    if st.peak > st.rate or s and s.rate ~= st.rate or st.used == 0 then return 0 end
    q.seq = st.rate
    return st.at + ceil(st.used / st.drain)
  elseif st.kind == 2 then
    if q.seq < st.head or q.seq > st.tail then return 0 end
    if q.seq == st.tail then return st.lst + st.win end
    local _, last = unpack_(F'entry', get(r, 'e' .. st.id .. q.seq))
    return last + st.win
  elseif st.kind == 3 and st.at < st.fin then
    return q.both and max(q.ref, st.aft) or q.ref
  end
  return 0
end

-- Remembers a reservation whose hold is over, and whose parts were closed: at says where those
-- count that were held.
local function remember(r, ss, o, at)
  local e = { grant = o.grant, id = o.id, fin = 0, parts = {} }
  for k, q in ipairs(o.parts) do
    if q.held then q.ref, q.seq, q.both = unpack(at[k]) end
    local till = q.held and (q.ref or 0) == 0 and 0 or counts(r, ss, q)
    if till > now then
      e.fin = max(e.fin, till)
      e.parts[#e.parts + 1] = q
    end
  end
  e.fin = min(e.fin, o.fin + PASTLIFE)
  if e.fin <= now or append(r, e) then return end
  local list = pastHolds(r)
  for i = #list, 1, -1 do
    if list[i].grant == e.grant and list[i].id == e.id then table.remove(list, i) end
  end
  if #list >= MOSTPAST then table.remove(list, 1) end
  list[#list + 1] = e
  keepPast(r)
end

-- Forgets what ended reservations had of a limit: of a bucket whose rate changes it would not be
-- known how much has drained, and units that were given back may be theirs.
local function forgetPast(r, limit)
  local list, some = pastHolds(r), false
  for i = #list, 1, -1 do
    local ps = list[i].parts
    for k = #ps, 1, -1 do
      if ps[k].id == limit then
        table.remove(ps, k)
        some = true
      end
    end
    if #ps == 0 then table.remove(list, i) end
  end
  if some then keepPast(r) end
end
