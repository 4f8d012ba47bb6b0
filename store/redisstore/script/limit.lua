-- One limit of any kind.

local function advance(r, st, s, now)
  if st.kind == 1 then
    drain(st, s, now)
  elseif st.kind == 2 then
    expire(r, st, now)
  elseif st.kind == 3 and s and now >= st.fin then
    roll(st, s, now)
  end
end

local function ensure(r, s, now)
  local st = r.by[s.id]
  if st then return st end
  st = { id = s.id, kind = s.kind, win = s.win, used = 0, held = 0, loose = 0, peak = 0, ahead = 0 }
  if s.kind == 1 then
    st.at, st.rate, st.scale, st.drain = now, s.rate, s.scale, s.drain
  elseif s.kind == 2 then
    st.head, st.tail, st.first, st.lst, st.n, st.old = 1, 0, 0, 0, 0, 0
  elseif s.kind == 3 then
    st.at, st.fin, st.nxt, st.aft = 0, 0, 0, 0
  end
  r.ls[#r.ls + 1], r.by[s.id] = st, st
  advance(r, st, s, now)
  return st
end

local function excess(st, s, now, n)
  if s.kind == 1 then
    return st.held + n > s.eff or st.used > (s.eff - st.held - n) * s.scale
  end
  local used = st.used
  if s.kind == 3 and now + s.margin >= st.fin then used = max(used, st.nxt) end
  return used + st.held + n > s.eff
end

local function room(st, s, now)
  if s.kind == 1 then
    return max(0, max(0, floor((s.eff * s.scale - st.used) / s.scale)) - st.held)
  end
  local used = st.used
  if s.kind == 3 and now + s.margin >= st.fin then used = max(used, st.nxt) end
  return max(0, s.eff - used - st.held)
end

-- enter counts n units. It returns what a settlement needs to find them again: an instant, the
-- entry's number, and whether two windows count them.
local function enter(r, st, s, at, margin, n)
  if n <= 0 then return 0, 0, false end
  n = min(n, MAX)
  if st.kind == 1 then
    st.used = min(st.used + min(n * st.scale, MAX), MAX)
    return at, 0, false
  elseif st.kind == 2 then
    at = at + margin
    st.used = min(st.used + n, MAX)
    if st.head <= st.tail then
      at = max(at, st.lst)
      if at - st.first < (s and s.join or 0) or at == st.first then
        st.lst, st.n = at, min(st.n + n, MAX)
        return st.first, st.tail, false
      end
      r.put['e' .. st.id .. st.tail] = pack(F'entry', st.first, st.lst, st.n)
      if st.head == st.tail then st.old = st.lst end
    end
    st.tail = st.tail + 1
    st.first, st.lst, st.n = at, at, n
    return at, st.tail, false
  elseif st.kind == 3 then
    if at >= st.fin and s then roll(st, s, at) end
    if at >= st.fin then
      st.nxt = min(st.nxt + n, MAX)
      st.used, st.at, st.fin, st.aft = 0, at, at, max(st.aft, at + margin + 1)
      return at, 0, false
    end
    if at < st.at then return 0, 0, false end
    st.used = min(st.used + n, MAX)
    if at + margin < st.fin then return st.fin, 0, false end
    st.nxt = min(st.nxt + n, MAX)
    if st.aft == 0 and s then
      local _
      _, st.aft = window(s, st.fin)
    end
    return st.fin, 0, true
  end
  return 0, 0, false
end
