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
