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
