-- A plain take from a bucket that has, and always had, one limit of kind bucket.
if op == 'l' then
  local head = call('HGET', KEYS[1], 'h')
  local id, n, eff, win, rate, scale, drain = unpack_(F'whole x ask-bucket', blob, 2)
  local now, used, ttl, plain = raw, 0, 0, true
  if head then
    plain = false
    if #head == 59 then
      local ver, flags, last, t, i, u, at, r = unpack_(F'head whole bucket', head)
      if ver == 2 and flags == 0 and i == id and r == rate then
        plain, ttl = true, t
        if last > now then now = last end
        used = u - (now - at) * drain
        if used < 0 then used = 0 end
      end
    end
  end
  if plain then
    if used > (eff - n) * scale then return { 0, now, head or '' } end
    used = used + n * scale
    if used > MAX then used = MAX end
    local need = now + used / drain
    local short = need > ttl
    if short then ttl = keep(need) end
    head = pack(F'head whole bucket', 2, 0, now, ttl, id, used, now, rate, win)
    call('HSET', KEYS[1], 'h', head)
    if short then call('PEXPIRE', KEYS[1], math.ceil((ttl - raw) / 1000)) end
    return head
  end
end
