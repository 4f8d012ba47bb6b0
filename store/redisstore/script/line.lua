-- The lines of the buckets: who waits for their units, in all processes. See
-- internal/record/line.go, function by function. Waiters have numbers of 64 bits, which stay
-- strings of 8 bytes here. Their order is not left to the comparison of strings, which depends on
-- the server's locale.
--
-- Most calls find no line and bring no ticket: so these functions are made when they are needed.
local lined -- what decides by the lines in this decision; nil: there is no line and no ticket
local lines -- the same, once it was made

local function makeLines()
  local L = {}
  local NEVER = math.huge
  local AGE, LEASTLIFE, MOSTLIFE, NEXTLIFE = 1e7, 2e5, 5e6, 1e6
  local OTHERSPASS = LEASTLIFE / 2 -- when to ask again where units are free for others
  local NEAR = MOSTLIFE / 2 -- waits from here on need not be told apart: no ticket lives longer
  local MOSTTICKETS, MOSTPASSED = 128, 16
  local BEHINDALL = '\255\255\255\255\255\255\255\255'
  local of -- the lines of this decision's buckets
  local ticket, barges, priority, rank, number

  -- Reading and writing.

  local function whole(n) return assert(n == floor(n) and n >= 0 and n <= MAX and n) end

  local function read(text)
    local l = { list = {}, passed = {} }
    local version, till, count, p = unpack_(F'line', text)
    assert(version == 1 and whole(till) and count <= MOSTTICKETS)
    for i = 1, count do
      local x, claims = { claims = {} }
      x.number, x.arrival, x.fin, x.priority, claims, p = unpack_(F'waiting', text, p)
      assert(whole(x.arrival) and whole(x.fin) and x.priority < 10)
      x.rank = x.arrival - x.priority * AGE
      for j = 1, claims do
        local c = {}
        c.limit, c.n, p = unpack_(F'claim', text, p)
        x.claims[j] = whole(c.n) and c
      end
      l.list[i] = x
    end
    count, p = unpack_(F'passed', text, p)
    for i = 1, count do
      local y, units = { units = {} }
      y.limit, y.first, y.sum, units, p = unpack_(F'passing', text, p)
      assert(whole(y.sum) and units <= MOSTPASSED)
      for j = 1, units do
        local u = {}
        u.at, u.n, p = unpack_(F'window', text, p)
        y.units[j] = whole(u.at) and whole(u.n) and u
      end
      l.passed[i] = y
    end
    assert(p == #text + 1)
    return l
  end

  -- Bytes that cannot be read are no line, and are removed.
  local function load(c)
    if c.line then return c.line end
    local ok, l = true, { list = {}, passed = {} }
    if c.l then ok, l = pcall(read, c.l) end
    if not ok then l, c.l = { list = {}, passed = {}, changed = true }, false end
    c.line = l
    return l
  end

  local function text(l)
    if #l.list == 0 then return false end
    local out, till = { '' }, 0
    for _, x in ipairs(l.list) do
      till = max(till, x.fin)
      out[#out + 1] = pack(F'waiting', x.number, x.arrival, x.fin, x.priority, #x.claims)
      for _, c in ipairs(x.claims) do out[#out + 1] = pack(F'claim', c.limit, c.n) end
    end
    out[1] = pack(F'line', 1, till, #l.list)
    out[#out + 1] = pack(F'passed', #l.passed)
    for _, y in ipairs(l.passed) do
      out[#out + 1] = pack(F'passing', y.limit, y.first, y.sum, #y.units)
      for _, u in ipairs(y.units) do out[#out + 1] = pack(F'window', u.at, u.n) end
    end
    return table.concat(out)
  end

  -- Keeps what this decision changed, for flush.
  function L.keep(cs)
    for _, c in ipairs(cs) do
      local l = c.line
      if l.changed then c.l, c.lined, l.changed = text(l), true, false end
    end
  end

  -- Tickets.

  local function before(x, r, n)
    if x.rank ~= r then return x.rank < r end
    for i = 1, 8 do
      local a, b = byte(x.number, i), byte(n, i)
      if a ~= b then return a < b end
    end
    return false
  end

  local function expire(l)
    for i = #l.list, 1, -1 do
      if l.list[i].fin <= now then
        table.remove(l.list, i)
        l.changed, l.numbers = true, nil
      end
    end
    if #l.list == 0 and #l.passed > 0 then l.passed, l.changed = {}, true end
    for _, y in ipairs(l.passed) do
      local units = {}
      for _, u in ipairs(y.units) do
        if u.at > now then units[#units + 1] = u end
      end
      y.units = units
    end
  end

  -- Where a place in the order is in a line, or would be.
  local function position(l, r, n)
    local lo, hi = 1, #l.list + 1
    while lo < hi do
      local mid = floor((lo + hi) / 2)
      if before(l.list[mid], r, n) then lo = mid + 1 else hi = mid end
    end
    return lo
  end

  -- A take that names others looks for each of them: then the tickets are kept by number, too.
  local function index(l)
    l.numbers = {}
    for _, x in ipairs(l.list) do l.numbers[x.number] = x end
  end

  local function find(l, n)
    if l.numbers then
      local x = l.numbers[n]
      if not x then return end
      local i = position(l, x.rank, n)
      if l.list[i] == x then return i end
    end
    for i, x in ipairs(l.list) do
      if x.number == n then return i end
    end
  end

  local function removeAt(l, i)
    if l.numbers then l.numbers[l.list[i].number] = nil end
    table.remove(l.list, i)
    l.changed = true
  end

  local function remove(l, n)
    local i = find(l, n)
    if i then removeAt(l, i) end
  end

  local function sameClaims(a, b)
    if #a ~= #b then return false end
    for i, c in ipairs(a) do
      if c.limit ~= b[i].limit or c.n ~= b[i].n then return false end
    end
    return true
  end

  local function put(l, x)
    local i = find(l, x.number)
    if i then
      local o = l.list[i]
      if o.arrival == x.arrival and o.priority == x.priority and sameClaims(o.claims, x.claims) and
          2 * (o.fin - now) >= x.fin - now then return end
      removeAt(l, i)
    end
    x.rank = x.arrival - x.priority * AGE
    i = position(l, x.rank, x.number)
    if i > MOSTTICKETS then return end
    table.insert(l.list, i, x)
    if l.numbers then l.numbers[x.number] = x end
    l.changed = true
    if #l.list > MOSTTICKETS then removeAt(l, MOSTTICKETS + 1) end
  end

  local function claim(x, limit)
    for _, c in ipairs(x.claims) do
      if c.limit == limit then return c.n end
    end
    return 0
  end

  local function first(l, limit)
    for _, x in ipairs(l.list) do
      if claim(x, limit) > 0 then return x.number end
    end
    return NONE
  end

  local function passed(l, limit)
    local counts, past = 0, 0
    for _, y in ipairs(l.passed) do
      if y.limit == limit then
        for _, u in ipairs(y.units) do counts = counts + u.n end
        if y.first == first(l, limit) then past = y.sum end
      end
    end
    return counts, past
  end

  local function passedOf(l, limit)
    for _, y in ipairs(l.passed) do
      if y.limit == limit then return y end
    end
  end

  local function ensurePassed(l, limit)
    local y = passedOf(l, limit)
    if not y then
      y = { limit = limit, first = NONE, sum = 0, units = {} }
      l.passed[#l.passed + 1] = y
    end
    return y
  end

  local function byInstant(a, b) return a.at < b.at end

  local function joinUnits(us, k)
    us[k].n = min(us[k].n + us[k - 1].n, MAX)
    table.remove(us, k - 1)
  end

  local function add(y, n, till)
    if n <= 0 then return end
    local us = y.units
    us[#us + 1] = { at = min(till, MAX), n = min(n, MAX) }
    table.sort(us, byInstant)
    for k = #us, 2, -1 do
      if us[k - 1].at == us[k].at then joinUnits(us, k) end
    end
    if #us <= MOSTPASSED then return end
    local least = 3
    for k = 4, #us do
      if us[k].at - us[k - 2].at < us[least].at - us[least - 2].at then least = k end
    end
    joinUnits(us, least)
  end

  local function removeUnits(y, n, till)
    table.sort(y.units, byInstant)
    local units = {}
    for _, u in ipairs(y.units) do
      if u.at >= min(till, MAX) then
        local back = min(u.n, n)
        u.n, n = u.n - back, n - back
      end
      if u.n > 0 then units[#units + 1] = u end
    end
    y.units = units
  end

  -- The entry of the limit NONE, which no limit is called, says since when all this is noted.
  local function pass(l, limit, n, till)
    l.changed = true
    local since = ensurePassed(l, NONE)
    if since.sum == 0 then since.sum = now end
    local y = ensurePassed(l, limit)
    local front = first(l, limit)
    if y.first ~= front then y.first, y.sum = front, 0 end
    y.sum = min(y.sum + n, MAX)
    add(y, n, till)
  end

  local function knows(l, at)
    local since = passedOf(l, NONE)
    return since and since.sum > 0 and since.sum <= at
  end

  -- Until when n units of a limit count that are granted from an instant on and, if they are held,
  -- are held until fin. So much of a bucket limit is used before.
  local function countsUntil(s, n, used, at, fin, held)
    local till, _ = held and max(at, fin) or at, nil
    if s.kind == 1 then
      till = till + ceil((used + min(n * s.scale, MAX)) / s.drain)
    elseif s.kind == 2 then
      till = till + lateness(s) + s.win
    elseif s.kind == 3 then
      _, till = window(s, till + lateness(s))
    end
    return till
  end

  local function usedOf(r, s) return r.by[s.id] and r.by[s.id].used or 0 end

  -- Part k of a reservation has passed a ticket if its field lease has this bit. A program of the
  -- version before keeps it, and ignores it.
  local function bit(k) return 2 ^ k end
  L.bit = bit

  -- What passed the tickets of the limit of part k of a reservation, and until when this part was
  -- to count, at the least; nil: it did not pass any, or this is not noted any more, or it does not
  -- count any more.
  local function passedAt(r, s, o, k)
    local c, q = r.cell, o.parts[k]
    if not s or not c.l or floor(o.lease / bit(k)) % 2 == 0 then return nil end
    local l = load(c)
    local y = knows(l, o.at) and passedOf(l, s.id)
    if not y then return nil end
    local till = countsUntil(s, q.n, 0, o.at, o.fin, q.held)
    if till > now then return y, till, l end
  end

  -- Notes that of part k of a reservation n units were used, and it ends. They were settled.
  function L.settled(r, s, o, k, n)
    local y, till, l = passedAt(r, s, o, k)
    if not y then return end
    local q = o.parts[k]
    l.changed = true
    if s.kind == 4 then
      removeUnits(y, q.n, till)
    elseif q.held then
      removeUnits(y, q.n, till)
      add(y, n, countsUntil(s, 0, usedOf(r, s), now, 0, false))
    elseif n < q.n then
      removeUnits(y, q.n - n, till)
    elseif s.kind == 1 then
      add(y, n - q.n, countsUntil(s, 0, usedOf(r, s), now, 0, false))
    else
      add(y, n - q.n, till)
    end
    L.keep({ r.cell })
  end

  -- Notes until when what passed a ticket counts if a hold gets another end.
  function L.renewed(r, ss, o, fin)
    if fin <= o.fin then return end
    for k, q in ipairs(o.parts) do
      local s = ss.by[q.id]
      local y, till, l = passedAt(r, s, o, k)
      if y and q.held then
        removeUnits(y, q.n, till)
        add(y, q.n, countsUntil(s, q.n, usedOf(r, s), o.at, fin, true))
        l.changed = true
        L.keep({ r.cell })
      end
    end
  end

  -- Notes until when what passed a ticket counts of a reservation that was counted from at on, and
  -- was counted again from now on.
  function L.again(r, ss, o, at)
    local l = load(r.cell)
    if not r.cell.l or not knows(l, at) then
      o.lease = o.lease % 2
      return
    end
    for k, q in ipairs(o.parts) do
      local s, y = ss.by[q.id], passedOf(l, q.id)
      if s and y and not q.held and floor(o.lease / bit(k)) % 2 == 1 then
        local till = countsUntil(s, q.n, 0, at, o.fin, false)
        if till > now then removeUnits(y, q.n, till) end
        add(y, q.n, countsUntil(s, 0, usedOf(r, s), now, 0, false))
        l.changed = true
      end
    end
  end

  -- What tickets keep from a take.

  -- The most that a take of this priority may use of a limit.
  local function most(s, prio)
    if not s.shares then return s.eff end
    local eff, p = 0, s.shares + 1
    for _ = 1, byte(s.request, s.shares) do
      local from, n
      from, n, p = unpack_(F'share', s.request, p)
      if from > prio then break end
      eff = n
    end
    return eff
  end

  local function over(r, s, n, eff)
    local st = r.by[s.id]
    if not st then return n > eff end
    if s.kind == 1 then return st.held + n > eff or st.used > (eff - st.held - n) * s.scale end
    local used = st.used
    if s.kind == 3 and now + s.margin >= st.fin then used = max(used, st.nxt) end
    return used + st.held + n > eff
  end

  local function earlier(i, s, f)
    if barges then return end
    for _, x in ipairs(of[i].list) do
      if not before(x, rank, number) then return end
      local n = claim(x, s.id)
      if n > 0 and not (ticket and x.number == number) then
        local eff = most(s, x.priority)
        if n <= eff and not (s.kind == 3 and over(rs[i], s, n, eff)) and not f(x, n, eff) then return end
      end
    end
  end

  -- With beside, it passes none.
  local function yields(i, s, m, beside)
    local r, claims, yes, passes = rs[i], 0, false, false
    earlier(i, s, function(_, n, eff)
      if not over(r, s, m + claims + n, eff) then
        claims = claims + n
        return true
      end
      local kept = s.eff - eff
      if kept > 0 and over(r, s, claims + n, eff) then
        local counts, past = passed(of[i], s.id)
        if n > eff - kept then counts = past end
        if counts + m <= kept and not beside then
          passes = true
          return true
        end
      end
      yes = true
      return false
    end)
    return yes, passes
  end
  L.yields = yields

  function L.beside(i, s, n)
    local lo, hi = 0, n
    while lo < hi do
      local mid = lo + floor((hi - lo + 1) / 2)
      if yields(i, s, mid, true) then hi = mid - 1 else lo = mid end
    end
    return lo
  end

  function L.leads(i, s)
    local leads = true
    earlier(i, s, function()
      leads = false
      return false
    end)
    return leads
  end

  -- Notes what a take passes that is granted from at on, and held until fin.
  function L.passing(at, fin)
    if at > now then return end
    for i, r in ipairs(rs) do
      for _, s in ipairs(sss[i]) do
        local n, _ = s.got or 0, nil
        if n > 0 and #of[i].list > 0 then _, s.passes = yields(i, s, n) end
        if s.passes then
          pass(of[i], s.id, n, countsUntil(s, n, usedOf(r, s), at, fin, s.kind == 4 or fin > 0 and s.fl % 2 == 1))
        end
      end
    end
  end

  -- Waits. Those of NEAR and more are told apart only where nothing is held.

  -- The held parts of a limit that are soon over, in the order of their ends.
  local function ends(r, st)
    local out = {}
    if st.held == 0 or r.next > now + NEAR then return out end
    local xs, us = list(r, 'x'), list(r, 'u' .. st.id)
    for k = 1, 8 * r.m, 8 do
      local at = unpack_(F'number', xs, k)
      if at <= now + NEAR then
        local n = unpack_(F'number', us, k)
        if n > 0 then out[#out + 1] = { at = at, n = n } end
      end
    end
    table.sort(out, function(a, b) return a.at < b.at end)
    return out
  end

  -- Calls f with each entry of a rolling limit but the newest, until it returns something.
  local function older(r, st, f)
    for q = st.head, st.tail - 1 do
      if q % 64 == 0 or q == st.head then
        local names = {}
        for i = q, min(q - q % 64 + 63, st.tail - 1) do names[#names + 1] = 'e' .. st.id .. i end
        fields(r.cell, names)
      end
      local _, last, n = unpack_(F'entry', get(r, 'e' .. st.id .. q))
      local got = f(last, n)
      if got then return got end
    end
  end

  local function waitBucket(st, s, fs, want)
    local level, held, at = st.used, st.held * s.scale, now
    for i = 1, #fs + 1 do
      local f, need = fs[i], level + held - want
      if need <= 0 then return at - now end
      local t = ceil(need / s.drain)
      if need <= level and (not f or at + t <= f.at) then return at + t - now end
      if not f then break end
      level = max(0, level - (f.at - at) * s.drain)
      local moved = min(held, f.n * s.scale)
      level, held, at = level + moved, held - moved, f.at
    end
    return NEVER
  end

  local function waitRolling(r, st, s, fs, need)
    local function left(last, n)
      need = need - n
      return need <= 0 and last + st.win - now
    end
    local wait = older(r, st, left)
    if wait then return wait end
    local es, margin = {}, max(st.peak, lateness(s))
    if st.head <= st.tail then es[1] = { first = st.first, last = st.lst, n = st.n } end
    for _, f in ipairs(fs) do
      local at, e = f.at + margin, es[#es]
      if e then at = max(at, e.last) end
      if e and (at - e.first < s.join or at == e.first) then
        e.last, e.n = at, e.n + f.n
      else
        es[#es + 1] = { first = at, last = at, n = f.n }
      end
    end
    for _, e in ipairs(es) do
      wait = left(e.last, e.n)
      if wait then return wait end
    end
    return NEVER
  end

  local function waitCalendar(st, s, fs, want)
    local used, held = st.nxt, st.held
    for _, f in ipairs(fs) do
      if f.at <= st.fin then
        held = held - f.n
        if f.at + max(st.peak, lateness(s)) >= st.fin then used = used + f.n end
      end
    end
    if used + held <= want then return st.fin - now end
    if st.held > 0 then return NEVER end
    local _, fin = window(s, st.fin)
    return fin - now
  end

  local function wait(r, st, s, n)
    local fs = ends(r, st)
    if s.kind == 1 then return waitBucket(st, s, fs, (s.eff - n) * s.scale) end
    if s.kind == 2 then return waitRolling(r, st, s, fs, st.used + st.held + n - s.eff) end
    if s.kind == 3 then return waitCalendar(st, s, fs, s.eff - n) end
    local need = st.held + n - s.eff
    for _, f in ipairs(fs) do
      need = need - f.n
      if need <= 0 then return f.at - now end
    end
    return NEVER
  end

  local function earliestRetry(r, st, s, n)
    local need = st.used + st.held + n - s.eff - st.held - st.loose
    if s.kind == 1 then
      need = st.used + (st.held + n - s.eff - st.held - st.loose) * s.scale
    elseif s.kind == 3 and now + s.margin >= st.fin then
      need = max(st.used, st.nxt) + n - s.eff - st.loose
    end
    if need <= 0 then return 0 end
    if s.kind == 1 then return ceil(need / s.drain) end
    if s.kind == 3 then return st.fin - now end
    if s.kind == 4 then return 0 end
    local function left(last, units)
      need = need - units
      return need <= 0 and last + st.win - now
    end
    return older(r, st, left) or st.head <= st.tail and left(st.lst, st.n) or 0
  end

  -- How long a take waits for a limit behind the tickets before it, and for how many units it
  -- waits at the end.
  local function behind(i, s)
    local all, r = s.n, rs[i]
    local st = r.by[s.id]
    earlier(i, s, function(_, n)
      all = all + n
      return true
    end)
    if not st or s.eff < 1 then return OTHERSPASS, 0 end
    if s.kind == 1 then
      local need = st.used + (st.held + all - s.eff) * s.scale
      return need > 0 and ceil(need / s.drain) or OTHERSPASS, 0
    end
    local rounds = floor((all - 1) / s.eff)
    local n = all - rounds * s.eff
    if rounds > 0 and s.kind == 3 then return NEVER, n end
    local waits = over(r, s, n, s.eff) and wait(r, st, s, n) or OTHERSPASS
    return waits + rounds * (s.win or 0), n
  end

  -- The answers to a take.

  local function arrive(x)
    for _, l in ipairs(of) do
      local k = x.arrival == 0 and find(l, x.number)
      if k then x.arrival = l.list[k].arrival end
    end
    if x.arrival == 0 then x.arrival = max(1, now - x.waited) end
  end

  function L.begin(cs, extra, request, given)
    of, ticket, barges, priority, L.texts = {}, nil, given, floor(byte(request, 11) / 16), nil
    if #extra > 41 then
      local t, flags, limits, count, p = { order = {}, next = {} }
      t.number, t.arrival, t.waited, t.patience, flags, limits, count, p = unpack_(F'ticket', extra, 42)
      for i = 1, limits do t.order[i], p = { byte(extra, p, p + 1) }, p + 2 end
      barges, t.stands = barges or flags % 2 == 1, flags >= 2
      for i = 1, count do
        local x = { n = {} }
        x.number, x.arrival, x.waited, x.priority, x.at, limits, p = unpack_(F'next', extra, p)
        for j = 1, limits do x.n[j], p = unpack_(F'number', extra, p) end
        t.next[i] = x
      end
      if t.number ~= NONE then ticket = t end
    end
    for i, c in ipairs(cs) do
      of[i] = load(c)
      expire(of[i])
    end
    rank, number = now - priority * AGE, BEHINDALL
    if not ticket then return end
    if #ticket.next > 3 then
      for _, l in ipairs(of) do index(l) end
    end
    arrive(ticket)
    rank, number = ticket.arrival - priority * AGE, ticket.number
    local last = { rank = rank, number = number }
    for _, x in ipairs(ticket.next) do
      arrive(x)
      if not before(last, x.arrival - x.priority * AGE, x.number) then
        x.arrival = last.rank + 1 + x.priority * AGE
      end
      last = { rank = x.arrival - x.priority * AGE, number = x.number }
    end
  end

  -- Leaves the tickets of those behind a take, for the limits of which claims is true.
  local function leaveNext(fin, claims)
    for _, n in ipairs(ticket.next) do
      local x = { number = n.number, arrival = n.arrival, fin = fin, priority = n.priority, claims = {} }
      for j, s in ipairs(sss[n.at]) do
        if (n.n[j] or 0) > 0 and claims(s) then table.insert(x.claims, { limit = s.id, n = n.n[j] }) end
      end
      if #x.claims > 0 then put(of[n.at], x) else remove(of[n.at], n.number) end
    end
  end

  function L.leave()
    if not ticket then return end
    for _, l in ipairs(of) do remove(l, ticket.number) end
    leaveNext(now + NEXTLIFE, function() return true end)
  end

  -- Leaves the ticket of a take, which claims limits in their order until done says so, and those
  -- behind it. It is removed where it claims nothing.
  local function standIn(order, fin, done)
    local claims = {}
    for _, at in ipairs(order) do
      local i, s = at[1], sss[at[1]][at[2]]
      claims[i] = claims[i] or {}
      table.insert(claims[i], { limit = s.id, n = s.n })
      s.claimed = true
      if done(s) then break end
    end
    for i, l in ipairs(of) do
      if claims[i] then
        put(l, { number = number, arrival = ticket.arrival, fin = fin, priority = priority, claims = claims[i] })
      else
        remove(l, number)
      end
    end
    leaveNext(max(fin, now + NEXTLIFE), function(s) return s.claimed end)
  end

  -- Only leaves the ticket of a take over several slots, and those behind it. It claims all limits
  -- that it names; instead of its patience it says how long they live. Returns also 1 if all that
  -- it claims is free by now, and otherwise 0.
  function L.stand()
    if not ticket or not ticket.stands then return nil end
    local free = #ticket.order > 0 and 1 or 0
    for _, at in ipairs(ticket.order) do
      local i, s = at[1], sss[at[1]][at[2]]
      if over(rs[i], s, s.n, s.eff) or yields(i, s, s.n) then free = 0 end
    end
    standIn(ticket.order, now + ticket.patience, function() return false end)
    return ticket.arrival, free
  end

  -- Finds how long a take waits that was refused, and leaves its ticket. The answer has the lines
  -- as they were before: they explain it.
  function L.refuse(lease, stopped)
    L.texts = {}
    for i, r in ipairs(rs) do L.texts[i] = r.cell.l or '' end
    local retry, soonest = 0, 0
    for i, r in ipairs(rs) do
      for _, s in ipairs(sss[i]) do
        local n, st = lease == 1 and min(s.n, 1) or s.n, r.by[s.id]
        local waits, early = 0, 0
        if n == 0 then
          waits = 0
        elseif n > s.eff or s.eff <= 0 then
          waits, early = NEVER, NEVER
        elseif ticket and st and excess(st, s, now, n) then
          waits = wait(r, st, s, n)
          early = waits
          if st.held > 0 or st.loose > 0 then early = min(waits, earliestRetry(r, st, s, n)) end
        end
        if n > 0 and yields(i, s, n) then
          local b, need = behind(i, s)
          waits, s.need = max(waits, b), max(n, need)
        end
        s.waits = waits > 0
        retry, soonest = max(retry, waits), max(soonest, early)
      end
    end
    if not ticket then return end
    local stands = not stopped and soonest < NEVER and (ticket.patience == 0 or soonest <= ticket.patience)
    local fin = now + min(max(2 * retry, LEASTLIFE), MOSTLIFE)
    standIn(stands and ticket.order or {}, fin, function(s) return s.waits end)
  end

  function L.withdraw(c, n)
    local l = load(c)
    remove(l, n)
    L.keep({ c })
    for _, x in ipairs(l.list) do
      if x.fin > raw then return announce(c, x.number) end
    end
  end

  -- Tells those in the line of bucket i who fit now, each beside those before it: all who could
  -- pass at once, or else the first one. Were only the first one told, units that came free for
  -- others at the same time would lie idle, and all would if it does not ask any more.
  function L.tell(i, c)
    local l, claims = load(c), {}
    expire(l)
    for k, x in ipairs(l.list) do
      for _, s in ipairs(sss[i]) do
        local n = claim(x, s.id)
        claims[s] = (claims[s] or 0) + n
        if k > 1 and n > 0 and over(rs[i], s, claims[s], most(s, x.priority)) then return end
      end
      announce(c, x.number)
    end
  end
  return L
end

if op == 'w' then -- withdraws the ticket of a waiter
  lines = makeLines()
  for i = 1, #KEYS do
    local c = cell(i)
    if c.l then lines.withdraw(c, ARGV[4]) end
    flush(c)
  end
  return { 5, raw, 0 }
end
