-- Recovering what was lost. The field r has the grants that were recovered: per grant when nobody
-- asks for it any more, and whether its reservation is open (0) or it is done (1).
local MOSTGRANTS = 4096

-- Returns what was recovered under a grant: 0, 1, or nil. With a state it notes that, until fin; it
-- returns false if there are too many.
local function recovered(r, grant, state, fin)
  local list, at, out = get(r, 'r') or '', 1, {}
  if not state then
    while true do
      at = string.find(list, grant, at, true)
      if not at then return nil end
      if at % 17 == 1 then return byte(list, at + 16) end
      at = at + 1
    end
  end
  for p = 1, #list, 17 do
    local g, z = unpack_(F'grant', list, p)
    if g ~= grant and z > now then out[#out + 1] = sub(list, p, p + 16) end
  end
  if #out >= MOSTGRANTS then return false end
  out[#out + 1] = pack(F'grant', grant, fin, state)
  r.put.r, r.needed = table.concat(out), max(r.needed or 0, fin)
  return true
end
