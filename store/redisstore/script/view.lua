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
    local _, _, n = unpack_(F'entry', v)
    out[#out + 1] = v
    over, q = over - n, q + 1
  end
  local back, n, p, _ = {}, st.n, st.tail - 1
  while n == 0 and p >= q do
    local v = get(r, 'e' .. st.id .. p)
    _, _, n = unpack_(F'entry', v)
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
      local over, n = 0, s.need or leased and min(s.n, 1) or s.n
      if refused and n > 0 and n <= s.eff then over = max(st.used + st.held + n - s.eff, s.need and 1 or 0) end
      local e = entries(r, st, over)
      if e ~= '' then es[#es + 1] = string.char(j) .. e end
    end
  end
  return { header(r, ss), es, us, r.m }
end
