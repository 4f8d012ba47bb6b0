-- Writing and answering.

local function header(r, ss)
  local out, ls = { '' }, {}
  for _, s in ipairs(ss) do
    if r.by[s.id] then ls[#ls + 1] = r.by[s.id] end
  end
  for _, st in ipairs(r.ls) do
    if not ss.by[st.id] then ls[#ls + 1] = st end
  end
  out[1] = pack(F'head', 2, (r.m > 0 and 1 or 0) + (r.pause and 2 or 0), r.last, r.ttl)
  if r.m > 0 then out[2] = pack(F'open', r.m, r.next, r.ends) end
  if r.pause then out[#out + 1] = pack(F'paused', r.pause, #r.why, r.why) end
  for _, st in ipairs(ls) do
    local more = st.held ~= 0 or st.loose ~= 0 or st.peak ~= 0
    local ahead = st.ahead > r.last
    local kind = st.kind + (more and 16 or 0) + (ahead and 32 or 0)
    if st.kind == 1 then
      out[#out + 1] = pack(F'limit bucket', st.id, kind, st.used, st.at, st.rate, st.win)
    elseif st.kind == 2 then
      out[#out + 1] = pack(F'limit rolling', st.id, kind, st.win, st.used, st.head, st.tail, st.first, st.lst, st.n, st.old)
    elseif st.kind == 3 then
      out[#out + 1] = pack(F'limit calendar', st.id, kind, st.used, st.at, st.fin, st.nxt, st.aft)
    else
      out[#out + 1] = pack(F'limit', st.id, kind)
    end
    if more then out[#out + 1] = pack(F'held', st.held, st.loose, st.peak) end
    if ahead then out[#out + 1] = pack(F'ahead', st.ahead) end
  end
  return table.concat(out)
end

local LONGEST = 33 * 24 * 3600 * 1e6 -- calendar.Longest: no calendar window that ends is longer

-- The instant until which a limit's state matters.
local function until_(r, st)
  local need, from = 0, r.ends
  if st.kind == 1 then
    if st.used > 0 then need = st.at + st.used / st.drain end -- as the short ways
    if st.held > 0 then need = max(need, max(st.at, from) + ceil((st.used + st.held * st.scale) / st.drain)) end
  elseif st.kind == 2 then
    if st.head <= st.tail then need = st.lst + st.win end
    if st.held > 0 then need = max(need, max(from, st.lst) + 2 * st.win) end -- a margin is at most half a window
  elseif st.kind == 3 then
    if st.nxt > 0 and (st.aft == 0 or st.at == st.fin) then
      need = max(st.fin, st.aft) + LONGEST
    elseif st.nxt > 0 then
      need = st.aft
    elseif st.used > 0 then
      need = st.fin
    end
    if st.held > 0 then need = max(need, from + 2 * LONGEST, st.fin) end -- of a total it is as good as never
  end
  return need
end

-- Until when something in a record may count.
local function lasting(r)
  local fin = r.ends
  for _, st in ipairs(r.ls) do fin = max(fin, until_(r, st)) end
  return fin
end

-- Nothing makes a record's life shorter: until its end others may think that what was given back
-- counts.
local function write(r, ss, key)
  if #r.ls > 16 and r.m == 0 then -- limits of old versions of the policy
    local ls = {}
    for _, st in ipairs(r.ls) do
      local old = not ss.by[st.id] and until_(r, st) <= r.last
      if old and st.kind == 2 then
        expire(r, st, r.last)
        old = st.head > st.tail
      end
      if old then r.by[st.id] = nil else ls[#ls + 1] = st end
    end
    r.ls = ls
  end
  local need = max(lasting(r), raw, r.pause or 0, r.needed or 0)
  local c, short, kept, past = r.cell, need > r.ttl
  if r.cleared then
    kept, past, r.new = get(r, 'r'), get(r, 'p'), true
  end
  if r.longer and c.g and #c.g > 18 then
    r.news = r.news or {}
    r.news.longer = need
  end
  note(c, r.news)
  if r.cleared then
    c.cleared, c.put = true, false
    r.put.g, r.put.r, r.put.p = c.g, kept or nil, past or nil
  end
  if short then r.ttl = keep(need) end
  if short or r.cleared then c.ttl = r.ttl end
  if r.new and key ~= '' then r.put.k = key end
  if c.put then
    for f, v in pairs(r.put) do c.put[f] = v end
  elseif next(r.put) then
    c.put = r.put
  end
  c.head, c.dirty = header(r, ss), true
end
