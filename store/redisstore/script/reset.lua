-- A reset is a write: it empties the record, and begins an epoch. A bucket whose header cannot be
-- read is repaired that way; it lives as long as the longest calendar window then, because nobody
-- knows what others think of it.
if op == 'e' then
  local c = cell(1)
  if not c.head then return { 5, raw, 0 } end
  local last, ttl, _ = 0, raw + 33 * 24 * 3600 * 1e6
  if #c.head >= 18 and byte(c.head) == 2 then
    _, _, last, ttl = unpack_(F'head', c.head)
  else
    c.head = pack(F'head', 2, 0, last, ttl)
  end
  if c.g and not pcall(function()
    local function whole(n) return assert(n == math.floor(n) and n >= -MAX and n <= MAX) end
    assert(byte(c.g) == 1 and byte(c.g, 2) < 4)
    local h = history(c)
    for _, k in ipairs({ 'reset', 'paused', 'till', 'resumed' }) do whole(h[k]) end
    for _, e in ipairs(h.epochs) do
      whole(e.start or 0)
      whole(e.fin or 0)
      whole((unpack_(F'number', e.mark, 9)))
    end
  end) then c.g = false end
  local now, key = max(raw, last + STEP), call('HGET', c.key, 'k')
  note(c, { reset = now, paused = 0, till = 0, resumed = 0 })
  c.put = { g = c.g, k = key or nil }
  c.head, c.ttl, c.cleared, c.dirty = pack(F'head', 2, 0, now, ttl), ttl, true, true
  flush(c)
  return { 5, now, 0 }
end
