-- Reservations whose hold has ended: where their units count. The field p has them; see past.go in
-- internal/record. Of a part of kind bucket, seq is the rate, with which its units drain.
local MOSTPAST = 64
local PASTLIFE = 3.6e9

local function readPast(v)
  local list, p = {}, 1
  while p <= #v do
    local o, count, fl = { parts = {} }
    o.grant, o.fin, o.id, count, p = unpack_(F'ended', v, p)
    for i = 1, count do
      local q = {}
      q.id, q.n, q.ref, q.seq, fl, p = unpack_(F'part', v, p)
      for _, n in ipairs({ q.n, q.ref, q.seq }) do assert(n >= 0 and n <= MAX and n % 1 == 0) end
      q.both = fl == 2
      o.parts[i] = q
    end
    if o.fin > now then list[#list + 1] = o end
  end
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

local function keepPast(r)
  local out = {}
  for _, o in ipairs(r.past) do
    out[#out + 1] = pack(F'ended', o.grant, o.fin, #o.id, o.id, #o.parts)
    for _, q in ipairs(o.parts) do out[#out + 1] = pack(F'part', q.id, q.n, q.ref, q.seq, q.both and 2 or 0) end
  end
  r.put.p = #out > 0 and table.concat(out)
end

-- Drops what is only kept for open reservations once there are none. The highest rate is kept for
-- those that have ended, too: a program that does not know of them may change it.
local function settled(r)
  if r.m > 0 then return end
  local kept
  for _, st in ipairs(r.ls) do
    if st.kind == 1 and st.peak > 0 and not kept then
      kept = {}
      for _, o in ipairs(pastHolds(r)) do
        for _, q in ipairs(o.parts) do kept[q.id] = true end
      end
    end
    if st.kind ~= 1 or st.peak > 0 and not kept[st.id] then st.peak = 0 end
  end
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
  local list = pastHolds(r)
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
  if e.fin <= now then return end
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
  if some then
    keepPast(r)
    settled(r)
  end
end
