-- A record's history: the field g. It has the format, flags; if flag 1: the instant of the last
-- reset; if flag 2: when the last pause was set, until when, and when one was ended last; then the
-- epochs, the oldest first. Each has, but for the oldest, the instant of the last write before it,
-- and until when what was written before it may count; and its mark.
local OTHERS = NONE .. NONE -- the mark of what programs that know no histories wrote
local NORECORD = '\255\255\255\255\255\255\255\255\0\0\0\0\0\0\240\191' -- and -1
local MOSTEPOCHS = 1000

-- The caller names the generation that its connection learned when it was made. A server may draw
-- another master_replid while it runs and keeps its data, as when it gets its first replica. So
-- where a record or a caller knows another generation, the server itself is asked, once in a call:
-- it takes as long as some plain takes. Without that, connections from before and after would
-- begin epochs in turn.
local confirmed = false
local function confirm(other)
  if confirmed or other == gen or other == NONE or gen == NONE then return end
  confirmed = true
  local server, replication = redis.pcall('INFO', 'server'), redis.pcall('INFO', 'replication')
  if type(server) ~= 'string' or type(replication) ~= 'string' then return end
  local id, replid = server:match('run_id:(%x+)'), replication:match('master_replid:(%x+)')
  if not id or not replid then return end
  gen = sub(redis.sha1hex(id .. ' ' .. replid), 1, 16):gsub('%x%x', function(x) return string.char(tonumber(x, 16)) end)
end

-- Reports whether what a caller knows of a record is its last mark, in this generation.
local function current(c, known)
  local mark = not c.head and NORECORD or c.g and sub(c.g, -16) or OTHERS
  if c.head then confirm(sub(mark, 1, 8)) end
  if sub(known, 1, 24) ~= NONE .. NONE .. NONE then confirm(sub(known, 17, 24)) end
  return sub(known, 1, 16) == mark and (gen == NONE or sub(known, 17) == gen)
end

-- Returns a record's history.
local function history(c)
  local h = { reset = 0, paused = 0, till = 0, resumed = 0, epochs = {} }
  if not c.head then return h end
  local p, flags, _ = 1, 0
  if c.g then _, flags, p = unpack_(F'epochs', c.g) end
  if flags % 2 == 1 then h.reset, p = unpack_(F'number', c.g, p) end
  if flags >= 2 then h.paused, h.till, h.resumed, p = unpack_(F'pauses', c.g, p) end
  h.epochs[1] = { mark = c.g and sub(c.g, p, p + 15) or OTHERS }
  p = p + 16
  while c.g and p <= #c.g do
    local e = {}
    e.start, e.fin, e.mark, p = unpack_(F'epoch mark', c.g, p)
    h.epochs[#h.epochs + 1] = e
  end
  return h
end

-- Notes a write that is about to be made: the epoch that it begins, and what else the history has
-- to say: longer is until when what was written before may count after all. A server that does not
-- say which it is begins no epoch but the first: otherwise a process that may not ask and one that
-- may would begin them in turn.
local function note(c, news)
  if c.head and c.g then confirm(sub(c.g, -16, -9)) end
  local drawn = c.head and c.g and (gen == NONE or sub(c.g, -16, -9) == gen)
  if drawn and not news then return end
  local h, _ = history(c)
  local es = h.epochs
  for k, v in pairs(news or {}) do h[k] = v end
  for i = 2, h.longer and #es or 0 do es[i].fin = max(es[i].fin, h.longer) end
  if not drawn or news and news.reset then
    local e, clock = {}, raw
    if c.head then
      _, _, e.start, e.fin = unpack_(F'head', c.head)
      clock = max(raw, unpack_(F'number', es[#es].mark, 9) + 1) -- marks differ, whatever the clock shows
    end
    e.mark = gen .. pack(F'number', clock)
    es[#es + 1] = e
  end
  while #es > 1 and (es[2].fin <= raw or #es > MOSTEPOCHS) do table.remove(es, 1) end
  local pauses = h.paused > 0 or h.resumed > 0
  local out = { pack(F'epochs', 1, (h.reset > 0 and 1 or 0) + (pauses and 2 or 0)) }
  if h.reset > 0 then out[2] = pack(F'number', h.reset) end
  if pauses then out[#out + 1] = pack(F'pauses', h.paused, h.till, h.resumed) end
  out[#out + 1] = es[1].mark
  for i = 2, #es do out[#out + 1] = pack(F'epoch mark', es[i].start, min(ceil(es[i].fin), MAX), es[i].mark) end
  c.g = table.concat(out)
  c.put = c.put or {}
  c.put.g = c.g
end

-- What a caller that names what it knows is told of a record: flags (1: it was written, 2: the
-- reservation is gone, 4: a condition does not hold, 8: the rest follows), the last write, the
-- generation; until when a pause is in force, and the history.
local function describe(c, known, flags)
  local last, fl, till, _ = 0, 0, 0
  if c.head then _, fl, last = unpack_(F'head', c.head) end
  if current(c, known) then return pack(F'past', flags, last, gen) end
  if fl >= 2 then till = unpack_(F'number', c.head, fl % 2 == 1 and 43 or 19) end
  local g = ''
  if c.head then g = c.g or pack(F'epochs', 1, 0) .. OTHERS end
  return pack(F'past number', flags + 8, last, gen, till) .. g
end
