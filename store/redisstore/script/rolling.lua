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
      _, last, n = unpack_(F'entry', get(r, f))
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
    local a, z, c = unpack_(F'entry', get(r, f))
    r.put[f] = pack(F'entry', a, z, set(c))
  end
end
