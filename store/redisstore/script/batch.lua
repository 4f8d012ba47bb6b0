-- A batch: requests of several callers on the buckets KEYS, decided in order. ARGV[2] has a group
-- after the other: its operation, how many requests of exactly this kind there are, how many
-- buckets they have, and per bucket its place in KEYS and the place in ARGV of what is asked of it;
-- but for plain takes of one bucket without a ticket, also the places of the ID and of the further
-- arguments; and at last that of what the caller knows of the buckets' histories, or 0.
--
-- If a request needs calendar windows that it did not bring, nothing at all is done.
local groups, place, done = blob, 1, 0 -- place is that of the first group that is not done; done, how many of its requests are
local short, others = {}, { 14, raw, '' } -- answers: per group, and after the first three those that are not in it
-- Plain takes that the short way cannot decide cost ten times as much, and a hundred times as one
-- of many that ask for the same. Nobody knows before, so only so many are decided; others are sent
-- again.
local longer = 100
local plans = {} -- of plain takes from one limit of kind bucket, by their place in ARGV

local function plan(a)
  local id, n, eff, win, rate, scale, drain = unpack_(F'whole x ask-bucket', ARGV[a], 2)
  plans[a] = { id = id, win = win, rate = rate, drain = drain, step = n * scale, most = (eff - n) * scale }
  return plans[a]
end

-- Plain takes from a bucket that has, and always had, one limit of kind bucket: see op 'l'. Returns
-- the answer of their group, or nothing if this is another bucket.
local function plainTakes(c, q, count, known)
  if c.l then return nil end
  local used, now, ttl, head = 0, raw, 0, c.head
  if head then
    if #head ~= 59 or c.g and byte(c.g) ~= 1 then return nil end
    local ver, flags, last, t, i, u, at, r = unpack_(F'head whole bucket', head)
    if ver ~= 2 or flags ~= 0 or i ~= q.id or r ~= q.rate then return nil end
    now = after(c, last)
    used, ttl = u - (now - at) * q.drain, t
    if used < 0 then used = 0 end
  end
  local before, k, step, most, drain = used, 0, q.step, q.most, q.drain
  while k < count and used <= most do
    used, k = used + step, k + 1
    if used > MAX then used = MAX end
    if now + used / drain > ttl then
      ttl = keep(now + used / drain)
      c.ttl = ttl
    end
  end
  if k > 0 then
    note(c)
    c.head, c.dirty = pack(F'head whole bucket', 2, 0, now, ttl, q.id, used, now, q.rate, q.win), true
  end
  if not known then return pack(F'plain', 1, before, now, k) end
  local t = describe(c, known, 0)
  return pack(F'plain text', 2, before, now, k, #t, t)
end

-- Carries out groups from place on. It returns at one that takes the long way.
local function shortWay()
  while place <= #groups do
    local kind, count, n, k, a, w, p = unpack_(F'group of whom', groups, place)
    local _
    if kind == 'q' then _, _, w, p = unpack_(F'of whom', groups, place + 8) end
    local answer
    local known = w > 0 and ARGV[w]
    if kind == 'l' then
      answer = plainTakes(cells[k], plans[a] or plan(a), count, known)
      if not answer then return end
    elseif kind == 'h' or kind == 'q' then
      while done < count do
        local h = several(cells[k], ARGV[a])
        if not h then return end
        done = done + 1
        if known and not current(cells[k], known) then h = { 16, raw, h, { describe(cells[k], known, 1) } } end
        others[#others + 1] = h
      end
      answer, done = pack(F'others', 0, count), 0
    else
      return
    end
    short[#short + 1] = answer
    place = p
  end
end

-- Writes what the batch decided, and returns its answer. If a write fails after another one, nobody
-- knows what was done.
local function ended()
  local ok, err = pcall(function()
    for i = 1, #cells do flush(cells[i]) end
  end)
  if not ok and not wrote then error(err, 0) end
  if not ok then return { 15, raw, type(err) == 'table' and err.err or tostring(err) } end
  others[3] = table.concat(short)
  return others
end

if op == 'm' then
  for i = 1, #KEYS do cell(i) end
  shortWay()
  if place > #groups then return ended() end
end
