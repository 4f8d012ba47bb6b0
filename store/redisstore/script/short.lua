-- A plain take from a bucket that has, and always had, one limit of kind bucket, and for which
-- nobody waits; one with a ticket only if it is granted.
if op == 'l' or op == 'q' and byte(blob) == 1 and byte(blob, 10) == 1 then
  local got = call('HMGET', KEYS[1], 'h', 'g', 'l')
  local head, g, l = got[1], got[2], got[3]
  local id, n, eff, win, rate, scale, drain = unpack_(F'whole x ask-bucket', blob, 2)
  local now, used, ttl, plain = raw, 0, 0, not l
  if head and plain then
    plain = false
    -- no epoch begins, and the caller knows them
    if #head == 59 and g and (sub(g, -16, -9) == gen or gen == NONE) and (#past == 16 or
        sub(past, 17, 32) == sub(g, -16) and (sub(past, 33) == gen or gen == NONE)) then
      local ver, flags, last, t, i, u, at, r = unpack_(F'head whole bucket', head)
      if ver == 2 and flags == 0 and i == id and r == rate then
        plain, ttl = true, t
        if last >= now then now = last + STEP end
        used = u - (now - at) * drain
        if used < 0 then used = 0 end
      end
    end
  end
  if plain then
    local full = used > (eff - n) * scale
    if full and op == 'l' then return { 0, now, head or '' } end
    plain = not full and n > 0 -- a refused take with a ticket leaves it
  end
  if plain then
    used = used + n * scale
    if used > MAX then used = MAX end
    local need = now + used / drain
    local short = need > ttl
    if short then ttl = keep(need) end
    local old = head
    head = pack(F'head whole bucket', 2, 0, now, ttl, id, used, now, rate, win)
    if old then
      call('HSET', KEYS[1], 'h', head)
    else
      g = pack(F'epochs', 1, 0) .. gen .. pack(F'number', raw)
      call('HSET', KEYS[1], 'h', head, 'g', g)
    end
    if short then call('PEXPIRE', KEYS[1], math.ceil((ttl - raw) / 1000)) end
    if not old and #past > 16 then return { 16, now, head, { pack(F'past number', 9, now, gen, 0) .. g } } end
    return head
  end
end
