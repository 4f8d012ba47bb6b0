-- A plain take from a bucket for which nobody waits, in which nothing is held, and whose limits are
-- all in this request, in this order. Returns the new header. Anything less common returns nothing,
-- before anything was changed, and takes the long way.
local function several(cell, blob)
  if cell.l then return nil end
  local head = cell.head
  local now, ttl, hp, size, ver, flags = raw, 0, 19, 0
  if head then
    local last
    ver, flags, last, ttl = unpack_(F'head', head)
    if ver ~= 2 or flags ~= 0 or cell.g and byte(cell.g) ~= 1 then return nil end
    now = after(cell, last)
    size = #head
  end
  local bp, need, k, any = 2, 0, 1, false
  local out, set, del = { '' }
  for _ = 1, byte(blob) do
    local id = sub(blob, bp, bp + 8)
    local kind = byte(blob, bp + 8)
    local has = size > hp and sub(head, hp, hp + 8) == id
    k = k + 1
    if kind == 1 then
      local n, eff, win, rate, scale, drain
      n, eff, win, rate, scale, drain, bp = unpack_(F'ask-bucket', blob, bp + 10)
      local used = 0
      if has then
        local at, r, _
        used, at, r, _, hp = unpack_(F'bucket', head, hp + 9)
        if r ~= rate then return nil end
        used = used - (now - at) * drain
        if used < 0 then used = 0 end
      end
      if n > 0 then
        any = true
        if n > eff or used > (eff - n) * scale then return nil end
        used = used + n * scale
        if used > MAX then used = MAX end
      end
      if used > 0 and now + used / drain > need then need = now + used / drain end
      out[k] = (has or n > 0) and pack(F'whole bucket', id, used, now, rate, win) or ''
    elseif kind == 2 then
      local fl = byte(blob, bp + 9)
      local n, eff, win, join, margin
      n, eff, win, join, margin, bp = unpack_(F'ask-rolling', blob, bp + 10)
      local used, first, tail, f, l, c, old, _ = 0, 1, 0, 0, 0, 0, 0
      if has then
        _, used, first, tail, f, l, c, old, hp = unpack_(F'rolling', head, hp + 9)
        if not (first >= 0 and tail <= MAX and first <= tail + 1 and first % 1 == 0 and tail % 1 == 0) then return nil end
        if first <= tail then
          if l + win <= now then -- all of it
            if first < tail then return nil end
            used, first = 0, tail + 1
          elseif first < tail and old + win <= now then
            local e, list, from, step = 'e' .. sub(id, 1, 8), {}, first, 2
            del = del or {}
            repeat
              if not list[first - from + 1] then -- more at a time, the more there are
                list, from = {}, first
                for i = first, min(first + min(step, budget - #del + 1), tail) - 1 do list[#list + 1] = e .. i end
                fields(cell, list)
                step = 4 * step
              end
              local gone
              _, old, gone = unpack_(F'entry', field(cell, list[first - from + 1]))
              if old + win > now or #del >= budget then break end
              used = used - gone
              if used < 0 then used = 0 end
              del[#del + 1] = e .. first
              first = first + 1
            until first == tail
          end
        end
      end
      if n > 0 then
        any = true
        if used + n > eff then return nil end
        used = used + n
        local at = now
        if fl % 2 == 0 then at = now + margin end
        local joined = false
        if first <= tail then
          if at < l then at = l end
          joined = at - f < join or at == f
        end
        if joined then
          l, c = at, c + n
          if c > MAX then c = MAX end
        else
          if first <= tail then
            set = set or {}
            set[#set + 1] = 'e' .. sub(id, 1, 8) .. tail
            set[#set + 1] = pack(F'entry', f, l, c)
            if first == tail then old = l end
          end
          tail, f, l, c = tail + 1, at, at, n
        end
      end
      if first <= tail then
        if c == 0 then return nil end -- an answer needs the newest entry with units that still count
        if l + win > need then need = l + win end
      end
      out[k] = (has or n > 0) and pack(F'whole rolling', id, win, used, first, tail, f, l, c, old) or ''
    elseif kind == 3 then
      local fl = byte(blob, bp + 9)
      local n, eff, margin, s1, e1, s2, e2
      n, eff, margin, bp = unpack_(F'ask-calendar', blob, bp + 10)
      local count = byte(blob, bp) + 256 * byte(blob, bp + 1)
      local wp = bp + 2
      bp = wp + 16 * count
      local used, at, fin, nxt, aft = 0, 0, 0, 0, 0
      if has then
        used, at, fin, nxt, aft, hp = unpack_(F'calendar', head, hp + 9)
      end
      if (has or n > 0) and now >= fin then
        local s, e
        for i = 1, count do
          local a, z = unpack_(F'window', blob, wp + 16 * i - 16)
          if a <= now and now < z then s, e = a, z end
        end
        if not s then return nil end
        local carry = 0
        if fin > 0 and (s <= fin or s < aft) then carry = nxt end
        used, at, fin, nxt, aft = carry, s, e, 0, 0
      end
      if n > 0 then
        any = true
        if used + n > eff or now + margin >= fin then return nil end
        used = used + n
      end
      if nxt > 0 then return nil end
      if used > 0 and fin > need then need = fin end
      out[k] = (has or n > 0) and pack(F'whole calendar', id, used, at, fin, nxt, aft) or ''
    else
      return nil
    end
  end
  if not any or size >= hp then return nil end
  if need > ttl then
    ttl = keep(need)
    cell.ttl = ttl
  end
  note(cell)
  out[1] = pack(F'head', 2, 0, now, ttl)
  cell.head, cell.dirty = table.concat(out), true
  if set or del then
    local put = cell.put or {}
    cell.put = put
    for i = 1, set and #set or 0, 2 do put[set[i]] = set[i + 1] end
    for i = 1, del and #del or 0 do put[del[i]] = false end
    budget = budget - (del and #del or 0)
  end
  return cell.head
end

if op == 'h' or op == 'q' then
  local h = several(cell(1), blob)
  if h then
    flush(cells[1])
    local known = sub(past, 17)
    if known == '' or current(cells[1], known) then return h end
    return { 16, raw, h, { describe(cells[1], known, 1) } }
  end
end
