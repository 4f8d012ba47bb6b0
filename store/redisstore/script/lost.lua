local recover, reopen
if batch or again or op == 'v' then
  -- Counts n units that were lost, from an instant on.
  local function enterLost(r, s, at, n)
    local st = ensure(r, s, now)
    if at > now and (st.kind == 1 or st.kind == 3 and at >= st.fin) then
      enterAhead(r, st, s, at, n)
    else
      enter(r, st, s, at, 0, n)
    end
  end

  -- Ends the reservation of a grant without counting anything. It returns false if there is none.
  local function dissolve(r, ss, grant)
    all(r)
    for k = 1, r.m do
      local o = r.os[k]
      if o.grant == grant then
        for _, q in ipairs(o.parts) do settlePart(r, ss, q, 0) end
        forget(r, o)
        return true
      end
    end
    return false
  end

  -- Charges what was lost, once per grant: parts that still count, and that no reset has forgiven.
  function recover(common)
    local r, ss = rs[1], sss[1]
    local grant, count, p = unpack_(F'recover', common)
    local reset = history(r.cell).reset
    local was, parts, last = recovered(r, grant), {}, 0
    for i = 1, count do
      local part = { n = {} }
      local fin
      part.from, fin, p = unpack_(F'window', common, p)
      for j = 1, #ss do part.n[j], p = unpack_(F'number', common, p) end
      if fin > now and part.from >= reset then parts[#parts + 1], last = part, max(last, fin) end
    end
    if was == 1 or #parts == 0 then return 5 end
    if not recovered(r, grant, 1, last) then return 8 end
    r.dirty = true
    if was == 0 and not dissolve(r, ss, grant) then return 5 end -- a program of the version before ended it
    for _, part in ipairs(parts) do
      for j, s in ipairs(ss) do
        if part.n[j] > 0 and s.kind ~= 4 then enterLost(r, s, max(now, part.from), part.n[j]) end
      end
    end
    return 5
  end

  -- Opens a reservation again that was lost, until fin. Returns a code, and from when it is open
  -- if it is; nil if it still has to be opened.
  function reopen(grant, fin)
    local r, ss = rs[1], sss[1]
    local o, was = find(r, id), recovered(r, grant)
    res[3] = fin
    if o and o.grant ~= grant then
      res[3] = 0
      return 10
    end
    for _, s in ipairs(ss) do s.got = s.n end
    if not o then
      if was then return 3, now end
      return nil
    end
    for _, q in ipairs(o.parts) do
      if ss.by[q.id] then ss.by[q.id].got = q.n end
    end
    if fin > o.fin then
      o.fin, r.ends, r.dirty = fin, max(r.ends, fin), true
      save(r, o)
      set(r, 'x', o.k, fin)
    end
    res[3] = o.fin
    return 3, o.at
  end
end
