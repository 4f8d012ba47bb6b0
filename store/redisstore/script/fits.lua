local paused, undecided, fits
if takes then
  function paused()
    for _, r in ipairs(rs) do
      if r.pause then return true end
    end
    return false
  end

  -- Reports whether a take cannot be decided yet: it does not fit, and this call may not remove any
  -- more of the expired entries. A limit that could never let it pass is none that it has to fit.
  -- Where others wait, it has to fit beside what they wait for.
  function undecided(lease)
    if budget > 0 then return false end
    for i, r in ipairs(rs) do
      for _, s in ipairs(sss[i]) do
        local st, n = r.by[s.id], lease == 1 and min(s.n, s.eff) or s.n
        if st and st.kind == 2 and n > 0 and n <= s.eff and oldestExpired(st, now) and (excess(st, s, now, n) or
            lined and lined.yields(i, s, n, lease == 1)) then return true end
      end
    end
    return false
  end

  function fits(hold, lease)
    for i, r in ipairs(rs) do
      for _, s in ipairs(sss[i]) do
        if s.n > 0 then
          local st = r.by[s.id]
          s.got = s.n
          if s.kind == 4 and hold == 0 then
            return false
          elseif lease == 1 then
            local most = s.eff
            if st then most = room(st, s, now) end
            s.got = min(s.n, most)
            if lined then s.got = lined.beside(i, s, s.got) end
            if s.got == 0 then return false end
          elseif not st then
            if s.n > s.eff then return false end
          elseif excess(st, s, now, s.n) then
            return false
          end
          if lined and lease ~= 1 and lined.yields(i, s, s.n) then return false end
        end
      end
    end
    return true
  end
end
