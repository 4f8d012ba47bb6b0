local given = false -- the take was allowed before, elsewhere: a pause does not refuse it
local undo -- restores what a refused replay gave back, after it was explained
local known, replay
if takes then
  -- A take whose grant is open already.

  -- Looks up the grant that a take names. Returns 'mine' if it is open in all of its buckets, or a
  -- code, and until when, from when and what is held.
  function known(grant, print)
    local was, same, from = 0, true, 0
    for i, r in ipairs(rs) do
      local o = find(r, id)
      if o then
        if o.grant ~= grant then
          res[3] = 0
          return 10
        end
        same = same and o.print == print
        if was == 0 or o.fin < res[3] then res[3] = o.fin end
        from = max(from, o.at)
        was = was + 1
        for _, q in ipairs(o.parts) do
          if sss[i].by[q.id] then sss[i].by[q.id].got = q.n end
        end
      end
    end
    if was == 0 then return nil end
    if was < #rs or not same then -- some of its buckets were settled or reset separately, or the take has another content
      res[3] = 0
      return 4
    end
    return 'mine', from
  end

  -- The parts of an open reservation that a replay takes again: what ages, in limits that this
  -- caller knows.
  local function moving(r, ss)
    local o, i = find(r, id), 0
    return function()
      while true do
        i = i + 1
        local q = o.parts[i]
        if not q then return nil end
        if not q.held and ss.by[q.id] and r.by[q.id] then return q, ss.by[q.id], r.by[q.id] end
      end
    end
  end

  local function copy(t)
    local c = {}
    for k, v in pairs(t) do c[k] = v end
    return c
  end

  function replay(from, notAfter)
    local aged = false
    for _, r in ipairs(rs) do
      local o = find(r, id)
      if now > o.at + o.margin then aged = true end
    end
    if not aged then return 3, from end
    local fin = res[3]
    res[3] = 0
    if notAfter > 0 and raw > notAfter then return 11 end
    if undecided(0) then return 13 end
    local before = {}
    for i, r in ipairs(rs) do
      before[i] = { put = copy(r.put), ls = {} }
      for k, st in ipairs(r.ls) do before[i].ls[k] = copy(st) end
    end
    local fits = given or not paused()
    for i, r in ipairs(rs) do
      for q in moving(r, sss[i]) do settlePart(r, sss[i], q, 0) end
    end
    for i, r in ipairs(rs) do
      for q, s, st in moving(r, sss[i]) do
        if excess(st, s, now, q.n) then fits = false end
      end
    end
    if not fits then
      undo = function()
        for i, r in ipairs(rs) do
          r.put = before[i].put
          for k, st in ipairs(r.ls) do
            for f, v in pairs(before[i].ls[k]) do st[f] = v end
          end
        end
      end
      return 2
    end
    for i, r in ipairs(rs) do
      local o = find(r, id)
      local was = o.at
      o.at, o.margin = now, MAX
      for q, s, st in moving(r, sss[i]) do
        q.ref, q.seq, q.both = enter(r, st, s, now, lateness(s), q.n)
        st.loose = min(st.loose + q.n, MAX)
        o.margin = min(o.margin, lateness(s))
      end
      if lined then
        lined.again(r, sss[i], o, was)
      else
        o.lease = o.lease % 2
      end
      save(r, o)
      r.dirty = true
    end
    res[3] = fin
    return 3, now
  end
end
