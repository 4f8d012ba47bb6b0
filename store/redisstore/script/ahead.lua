local start, enterAhead
if takes or op == 'v' then
  -- Granting ahead: see ahead.go.

  local function fitsInWindow(st, s, at, free)
    if at < st.fin and st.used <= free and (at + s.margin < st.fin or st.nxt <= free) then return at end
    at = max(at, st.fin)
    local _, fin = window(s, st.fin)
    if st.nxt > free or at + s.margin >= fin then return nil end
    return at
  end

  -- The first instant from at on, but not after latest, at which a limit has room.
  local function fitsFrom(r, st, s, at, latest)
    local free = s.eff - s.n - st.held
    if free < 0 then return nil end
    if s.kind == 1 then
      local over = st.used - free * s.scale
      if over > 0 then at = max(at, now + ceil(over / s.drain)) end
    elseif s.kind == 2 then
      local used, q = st.used, st.head
      while used > free and q <= st.tail and at <= latest do
        local last, n, _ = st.lst, st.n
        if q < st.tail then _, last, n = unpack_(F'entry', get(r, 'e' .. st.id .. q)) end
        used, at, q = used - n, max(at, last + st.win), q + 1
      end
    elseif s.kind == 3 then
      return fitsInWindow(st, s, at, free)
    end
    return at
  end

  local function earliest(at, hold, latest)
    local next = at
    for i, r in ipairs(rs) do
      for _, s in ipairs(sss[i]) do
        if s.n > 0 then
          local st = r.by[s.id]
          local t = at
          if s.n > s.eff or s.kind == 4 and hold == 0 then
            return nil
          elseif st then
            t = fitsFrom(r, st, s, at, latest)
          elseif s.kind == 3 then
            local _, fin = window(s, now)
            t = fitsInWindow({ fin = fin, used = 0, nxt = 0 }, s, at, s.eff - s.n)
          end
          if not t then return nil end
          next = max(next, t)
          if lined and not lined.leads(i, s) then return nil end
        end
      end
    end
    return next
  end

  -- The instant from which a take counts, or nil.
  function start(hold, ahead, lease)
    if fits(hold, lease) then return now end
    if ahead <= 0 or lease == 1 then return nil end
    local at, latest = now, now + ahead
    while at <= latest do
      local next = earliest(at, hold, latest)
      if not next then return nil end
      if next == at then
        for i in ipairs(rs) do
          for _, s in ipairs(sss[i]) do s.got = s.n end
        end
        return at
      end
      at = next
    end
    return nil
  end

  function enterAhead(r, st, s, at, n)
    if at == now or st.kind == 2 or st.kind == 3 and at < st.fin then return enter(r, st, s, at, lateness(s), n) end
    if st.kind == 1 then
      st.used = min(max(st.used, min((at - now) * s.drain, MAX)) + min(n * st.scale, MAX), MAX)
      st.ahead = max(st.ahead, at)
      return at, 0, false
    end
    st.nxt = min(st.nxt + n, MAX)
    local _
    _, st.aft = window(s, st.fin)
    return st.aft, 0, false
  end
end
