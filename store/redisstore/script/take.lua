local take
if takes then
  local MAXOPEN = 10000 -- record.MaxOpen

  -- A take that is lost and opened again has the end of its hold instead of its length, and the
  -- instant from which it counts instead of how long it may wait.
  function take(grant, print, hold, notAfter, ahead, lease)
    if lined then
      local arrival, free = lined.stand()
      if arrival then
        res[3], res[4] = arrival, free
        return 5
      end
    end
    if again then
      local code, from = reopen(grant, hold)
      if code then return code, from end
      if notAfter > 0 and raw > notAfter then return 11 end
    elseif id ~= '' then
      local code, from = known(grant, print)
      if code == 'mine' then return replay(from, notAfter) end
      if code then return code end
      if notAfter > 0 and raw > notAfter then return 11 end
    end
    if not again and undecided(lease) then return 13 end
    local stopped = not given and paused()
    local at = not stopped and (again and max(now, ahead) or start(hold, ahead, lease))
    if not at then
      if lined then lined.refuse(lease, stopped) end
      return 2
    end
    local fin = 0
    if hold > 0 then
      for _, r in ipairs(rs) do
        if r.m >= MAXOPEN then return 8 end
      end
      fin = again and hold or at + hold
    end
    if again and not recovered(rs[1], grant, 0, fin) then return 8 end
    res[3] = fin
    if lined then lined.passing(at, fin) end
    for i, r in ipairs(rs) do
      local parts, margin, flags = {}, MAX, lease
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
          if s.passes then flags = flags + lined.bit(#parts) end
          r.dirty = true
        end
      end
      if fin > 0 then
        r.m = r.m + 1
        local o = { k = r.m, id = id, grant = grant, print = print, at = at, margin = margin, fin = fin, lease = flags, parts = parts }
        save(r, o)
        enlist(r, o)
        if r.next == 0 or fin < r.next then r.next = fin end
        if fin > r.ends then r.ends = fin end
        for _, q in ipairs(parts) do
          local st = r.by[q.id]
          if st.kind == 1 then st.peak = max(st.peak, st.rate) end
        end
        r.dirty = true
        if again then recovered(r, grant, 0, lasting(r)) end
      end
    end
    if lined then lined.leave() end
    return 1, at
  end
end
