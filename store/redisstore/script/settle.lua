-- Corrections of what was taken.

-- Corrects one part that already counts: n units of it were used.
local function correctPart(r, st, q, n)
  if st.kind == 1 then
    settleBucket(st, q, n)
  elseif st.kind == 2 then
    settleRolling(r, st, q, n)
  elseif st.kind == 3 then
    settleCalendar(st, q, n - q.n)
  end
end

-- Corrects one part of a reservation: n units of it were used.
local function settlePart(r, ss, q, n)
  local st = r.by[q.id]
  if q.held then
    closePart(r, ss, q, n, now)
  elseif st then
    st.loose = st.loose - q.n
    correctPart(r, st, q, n)
  end
end

local settle, renew
if batch or op == 's' or op == 'x' or op == 'r' then
  -- How many units of a part were used, by a settlement.
  local function used(s, q, cancel)
    if cancel then return 0 end
    return s and s.n >= 0 and s.n or q.n
  end

  -- Corrects a part that may count no longer. Returns how many units came back.
  local function correctEnded(r, st, q, n)
    if st.kind == 2 then
      if q.seq < st.head or q.seq > st.tail then return 0 end
      local first, last = st.first, st.lst
      if q.seq < st.tail then
        local v = get(r, 'e' .. st.id .. q.seq)
        if not v then return 0 end
        first, last = unpack_(F'entry', v)
      end
      -- a limit that was forgotten meanwhile numbers its entries anew
      if first ~= q.ref or last + st.win <= now then return 0 end
    elseif st.kind == 1 and st.rate ~= q.seq then
      return 0 -- a program of the version before has changed it
    end
    local was, next = st.used, st.nxt or 0
    correctPart(r, st, q, n)
    if st.kind == 1 then return ceil((was - st.used) / st.scale) end
    return max(was - st.used, next - (st.nxt or 0))
  end

  -- Gives back what was not used of a reservation whose hold has ended without a settlement.
  -- Returns 1 if it is remembered, or 0, and the units per limit that came back.
  local function correct(r, ss, grant, cancel)
    local answer, again = { 0 }, find(r, id)
    if again and again.grant == grant then cancel = true end -- what is open counts
    for j = 1, #ss do answer[1 + j] = 0 end
    for k, o in ipairs(pastHolds(r)) do
      if o.grant == grant and o.id == id then
        for _, q in ipairs(o.parts) do
          local s, st = ss.by[q.id], r.by[q.id]
          local back = st and correctEnded(r, st, q, min(used(s, q, cancel), q.n)) or 0
          for j = 1, #ss do
            if ss[j] == s then answer[1 + j] = back end
          end
        end
        table.remove(r.past, k)
        keepPast(r)
        answer[1], r.dirty = 1, true
        break
      end
    end
    return answer
  end

  function settle(grant, cancel, late)
    local found = false
    for i, r in ipairs(late and rs or {}) do res[3 + i] = correct(r, sss[i], grant, cancel) end
    for i, r in ipairs(rs) do
      local o = find(r, id)
      r.gone = not o or o.grant ~= grant
      if not r.gone then
        found, r.dirty = true, true
        for k, q in ipairs(o.parts) do
          local s = sss[i].by[q.id]
          local n = used(s, q, cancel)
          settlePart(r, sss[i], q, n)
          if o.lease >= 2 and r.cell.l then
            lines = lines or makeLines()
            lines.settled(r, s, o, k, n)
          end
          if s then s.held = true end
        end
        for _, s in ipairs(sss[i]) do
          if not cancel and not s.held and s.n > 0 and s.kind ~= 4 then -- nothing of it was reserved
            enter(r, ensure(r, s, now), s, now, 0, s.n)
          end
          s.held = nil
        end
        forget(r, o)
      end
    end
    return found and 5 or 6
  end

  function renew(grant, hold)
    local found, kept, first = false, false, 0
    for _, r in ipairs(rs) do
      local o = find(r, id)
      if o and o.grant == grant then
        if o.lease % 2 == 1 and r.pause then kept = true end -- a lease ends while one of its buckets is paused
        if first == 0 or o.fin < first then first = o.fin end
      end
    end
    if kept then
      res[3] = first
      return 12
    end
    for i, r in ipairs(rs) do
      local o = find(r, id)
      r.gone = not o or o.grant ~= grant
      if not r.gone then
        found, r.dirty = true, true
        if o.lease >= 2 and r.cell.l then
          lines = lines or makeLines()
          lines.renewed(r, sss[i], o, max(o.fin, now + hold))
        end
        o.fin = max(o.fin, now + hold)
        r.ends = max(r.ends, o.fin)
        save(r, o)
        set(r, 'x', o.k, o.fin)
        if recovered(r, grant) == 0 then recovered(r, grant, 0, lasting(r)) end
        res[3] = max(res[3], o.fin)
      end
    end
    return found and 5 or 6
  end
end
