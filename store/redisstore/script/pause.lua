local pause, unpause
if batch or op == 'z' or op == 'u' then
  -- Pauses.

  -- when is when it was set, if that is made up for; 0: now.
  function pause(hold, till, when, why)
    if hold > 0 then till = now + hold end
    local kept = true
    for _, r in ipairs(rs) do
      local ended = when > 0 and history(r.cell).resumed or 0
      if till > max(now, r.pause or 0) and (when == 0 or when > ended) then
        r.pause, r.why, r.dirty = till, why, true
        r.news = { paused = when > 0 and when or now, till = till }
      end
      res[3] = max(res[3], r.pause or 0)
      kept = kept and (r.pause or 0) > max(now, till)
    end
    return kept and 12 or 5
  end

  function unpause(till, when)
    for _, r in ipairs(rs) do
      local mine = r.pause == till
      if mine or when > 0 and till > now then
        local ended = history(r.cell).resumed
        r.news, r.needed, r.dirty = { resumed = max(ended, when > 0 and when or now) }, till, true
      end
      if mine then r.pause, r.why, r.news.paused, r.news.till = nil, nil, 0, 0 end
      res[3] = max(res[3], r.pause or 0)
    end
    return res[3] > 0 and 12 or 5
  end
end
