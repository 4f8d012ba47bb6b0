-- The operations.

-- Adds what a caller is told of the records that it asked about. flag says what became of it in all
-- of them.
local function withHistories(answer, cs, known, flag)
  local list = {}
  for i, c in ipairs(cs) do
    list[i] = describe(c, sub(known, 24 * i - 23, 24 * i), (rs[i].wrote and 1 or 0) + (rs[i].gone and 2 or 0) + flag)
  end
  return { 16, answer[2], answer, list }
end

-- Decides a request. Returns its answer, or an error.
local function decide(op, cs, blobs, common, known)
  rs, sss, keys, given, undo, now = {}, {}, {}, false, nil, raw
  for i, c in ipairs(cs) do
    local err
    rs[i], err = load(c)
    if err then return nil, err end
    sss[i], keys[i] = specs(blobs[i])
    now = max(now, op == 'p' and rs[i].last or after(c, rs[i].last))
  end
  for i, r in ipairs(rs) do
    local next
    r.over, next = over(r, now)
    r.dirty = op ~= 'p' and strange(r, sss[i], now)
    r.next = next
    advanceAll(r, sss[i], now)
    r.dirty = r.dirty or op ~= 'p' and r.removed > MANYREMOVED
  end

  res = { 0, now, 0 }
  again = op == 't' and common ~= '' and byte(common, 41) >= 4
  if (again or op == 'v') and not current(cs[1], known) then
    return withHistories({ 17, now, 0 }, cs, known, 4)
  end
  local leased = false -- a lease accepts any part
  local from = 0 -- a take's units count from then on
  if op == 't' then
    local grant, print, hold, notAfter, ahead, lease = '', '', 0, 0, 0, 0
    if common ~= '' then grant, print, hold, notAfter, ahead, lease = unpack_(F'take', common) end
    given, lease = lease >= 2, lease % 2 -- all flags from given on pass a pause
    leased = lease == 1
    lined = nil
    local waits = #common > 41
    for _, c in ipairs(cs) do waits = waits or c.l end
    if waits then
      lines = lines or makeLines()
      lined = lines
      lined.begin(cs, common, blobs[1], given)
    end
    res[1], from = take(grant, print, hold, notAfter, ahead, lease)
  elseif op == 's' or op == 'x' then
    res[1] = settle(sub(common, 1, 8), op == 'x', #common > 8)
  elseif op == 'r' then
    res[1] = renew(unpack_(F'renew', common))
  elseif op == 'c' then
    res[1] = charge(unpack_(F'charge', common))
  elseif op == 'z' then
    local hold, till, when, p = unpack_(F'pause', common)
    res[1] = pause(hold, till, when, sub(common, p))
  elseif op == 'u' then
    local till, when = unpack_(F'unpause', common)
    res[1] = unpause(till, when)
  elseif op == 'v' then
    res[1] = recover(common)
  elseif op == 'b' then
    res[1] = refund((unpack_(F'refund', common)))
  else
    res[1] = 7
  end
  if #asked > 0 then return { 9, now, asked } end
  if op == 't' and lined then lined.keep(cs) end
  if op == 'p' and cs[1].l then
    for _, s in ipairs(sss[1]) do s.need = s.eff end
  end
  if op == 't' and res[1] < 4 or op == 'p' then
    for i, r in ipairs(rs) do
      local v = view(r, sss[i], res[1] == 2 or op == 'p', leased)
      if id ~= '' then
        local got = {}
        for j, s in ipairs(sss[i]) do got[j] = s.got or 0 end
        v[5] = got
      end
      res[3 + i] = v
    end
    if from and from > now then res[#res + 1] = from end -- it was granted ahead
    if op == 'p' and cs[1].l then
      res[#res + 1] = cs[1].l
    elseif res[1] == 2 and lined and lined.texts then
      res[#res + 1] = lined.texts
    end
  end
  if undo then undo() end
  local ends = op == 's' or op == 'x'
  local frees = res[1] == 5 and (ends or op == 'u' or op == 'b')
  if frees or ends and #res > 3 then -- it may correct a hold that has ended
    for i, c in ipairs(cs) do
      if c.l and (frees or res[3 + i][1] == 1) then
        lines = lines or makeLines()
        lines.tell(i, c)
      end
    end
  end
  for i, r in ipairs(rs) do
    if r.dirty or res[1] == 13 and r.removed > 0 then
      write(r, sss[i], keys[i])
      r.wrote = true
    end
  end
  return known == '' and res or withHistories(res, cs, known, 0)
end

if op == 'm' then
  while place <= #groups do
    local kind, count, n, p = unpack_(F'group', groups, place)
    local cs, blobs, common, k, a = {}, {}, ''
    id = ''
    for i = 1, n do
      k, a, p = unpack_(F'of', groups, p)
      cs[i], blobs[i] = cells[k], ARGV[a]
    end
    local plain = kind == 'l' or kind == 'h' or kind == 'q'
    if kind ~= 'l' and kind ~= 'h' then
      k, a, p = unpack_(F'of', groups, p)
      id, common = ARGV[k], ARGV[a]
    end
    if plain then kind = 't' end
    local w
    w, p = unpack_(F'whom', groups, p)
    local known = w > 0 and ARGV[w] or ''
    repeat
      local answer, err
      if plain and longer == 0 then
        answer = { 13, raw, 0 }
      else
        answer, err = decide(kind, cs, blobs, common, known)
        if plain then longer = longer - 1 end
      end
      if err then return redis.error_reply(err) end
      if #asked > 0 then return answer end
      done = done + 1
      others[#others + 1] = answer
      -- Those after a refusal, of the same kind, get the same answer; but they are told that it
      -- wrote nothing.
      local more = answer[1] == 1 or answer[1] == 16 and (answer[3][1] == 1 or rs[1].wrote)
    until done >= count or not more
    short[#short + 1] = pack(F'others', 0, done)
    place, done = p, 0
    shortWay()
  end
  return ended()
end

local blobs, common = { blob }, ''
if op == 'l' or op == 'h' then
  op = 't'
else
  if op == 'q' then op = 't' end
  id, common = ARGV[4], ARGV[5]
  for i = 2, #KEYS do blobs[i] = ARGV[4 + i] end
end
for i = 1, #KEYS do cell(i) end
local answer, err = decide(op, cells, blobs, common, sub(past, 17))
if err then return redis.error_reply(err) end
for i = 1, #cells do flush(cells[i]) end
return answer
