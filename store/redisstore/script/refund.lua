local charge, refund
if batch or op == 'b' or op == 'c' then
  function charge(at, notAfter)
    if notAfter > 0 and now > notAfter then return 11 end
    for i, r in ipairs(rs) do
      for _, s in ipairs(sss[i]) do
        if s.n > 0 and s.kind ~= 4 then
          local st = ensure(r, s, now)
          enter(r, st, s, s.kind == 3 and min(at, now) or now, 0, s.n)
          r.dirty = true
        end
      end
    end
    return 5
  end

  -- The units of open reservations that count already, by the entry's number or the end of the open
  -- window in which they count.
  local function reserved(r, st)
    local at = {}
    if st.loose == 0 then return at end
    all(r)
    for k = 1, r.m do
      for _, q in ipairs(r.os[k].parts) do
        if q.id == st.id and not q.held then
          local ref = st.kind == 2 and q.seq or q.ref
          if st.kind == 3 and q.both and st.at <= ref and ref < st.fin then ref = st.fin end
          at[ref] = (at[ref] or 0) + q.n
        end
      end
    end
    return at
  end

  local function refundRolling(r, st, n)
    local kept, back, seq = reserved(r, st), 0, st.tail
    while seq >= st.head and back < n do
      local f, a, z, c = 'e' .. st.id .. seq, 0, st.lst, st.n
      if seq < st.tail then a, z, c = unpack_(F'entry', get(r, f)) end
      if z + st.win <= now then break end -- it has expired, as all before it
      local d = min(n - back, max(0, c - (kept[seq] or 0)))
      if d > 0 then
        back = back + d
        if seq == st.tail then
          st.n = c - d
        else
          r.put[f] = pack(F'entry', a, z, c - d)
        end
      end
      seq = seq - 1
    end
    st.used = max(0, st.used - back)
    return back
  end

  local function refundOf(r, st, n)
    local back = 0
    if st.kind == 1 then
      local parts = min(spared(st, min(n * st.scale, MAX), now), max(0, st.used - min(st.loose * st.scale, MAX)))
      st.used = st.used - parts
      back = ceil(parts / st.scale)
    elseif st.kind == 2 then
      back = refundRolling(r, st, n)
    elseif st.kind == 3 then
      back = min(n, max(0, st.used - (reserved(r, st)[st.fin] or 0)))
      st.used = st.used - back
    end
    return back
  end

  -- seen is when somebody saw that the units are used, or 0.
  function refund(seen)
    local late = seen > 0 and now - seen > 2000000
    for i, r in ipairs(rs) do
      local got = {}
      for j, s in ipairs(sss[i]) do
        local st = r.by[s.id]
        local open = st and not late and (seen == 0 or st.kind ~= 3 or st.at <= seen)
        got[j] = 0
        if open and s.n > 0 then
          got[j] = refundOf(r, st, s.n)
          forgetPast(r, s.id)
          if got[j] > 0 then r.dirty = true end
        end
      end
      res[3 + i] = got
    end
    return 5
  end
end
