-- The long way: any operation, any record.
--
-- A call makes only the functions that it may need: each costs about 0.2 µs, and more, the more of
-- the script's variables are used by functions.
local batch = op == 'm'
local takes = batch or op == 't' or op == 'l' or op == 'h' or op == 'q'
local again = op == 't' and ARGV[5] ~= '' and byte(ARGV[5], 41) >= 4 -- see reopen
local floor = math.floor
local asked = {} -- instants whose calendar windows are unknown; if there are any, nothing is written
local id = '' -- of the request
local now = raw -- the instant of the decision
local rs, sss, keys = {}, {}, {} -- per bucket: its record, what is asked of it, the key's parts
local res -- the answer

local function gcd(a, b)
  while b > 0 do a, b = b, a % b end
  return a
end

local function get(r, f)
  local v = r.put[f]
  if v == nil then v = field(r.cell, f) end
  return v
end

-- Requests and records.

local function specs(b)
  local ss, p, shares = { by = {} }, 2, false
  for j = 1, byte(b) do
    local s = {}
    s.id, s.kind, s.fl, p = unpack_(F'limit flags', b, p)
    if s.kind == 1 then
      s.n, s.eff, s.win, s.rate, s.scale, s.drain, p = unpack_(F'ask-bucket', b, p)
      s.margin = 0
    elseif s.kind == 2 then
      s.n, s.eff, s.win, s.join, s.margin, p = unpack_(F'ask-rolling', b, p)
    elseif s.kind == 3 then
      local count
      s.n, s.eff, s.margin, count, p = unpack_(F'ask-calendar count', b, p)
      s.wins = {}
      for i = 1, count do
        local a, z
        a, z, p = unpack_(F'window', b, p)
        s.wins[i] = { a, z }
      end
    else
      s.n, s.eff, p = unpack_(F'ask-slots', b, p)
    end
    ss[j], ss.by[s.id] = s, s
    shares = shares or s.fl % 4 >= 2
  end
  for j = 1, shares and #ss or 0 do -- what takes of each priority may use, where it is not the same
    if ss[j].fl % 4 >= 2 then
      ss[j].request, ss[j].shares = b, p
      p = p + 1 + 9 * byte(b, p)
    end
  end
  return ss, sub(b, p)
end

local function load(c)
  local r = { cell = c, last = 0, ttl = 0, m = 0, next = 0, ends = 0, ls = {}, by = {}, put = {}, os = {}, removed = 0 }
  local h = c.head
  if not h then
    r.new = true
    return r
  end
  local version, flags, last, ttl, p = unpack_(F'head', h)
  if version ~= 2 then return nil, 'DRAWGATE unknown record format ' .. version end
  if flags > 3 then return nil, 'DRAWGATE unknown record flags ' .. flags end
  if c.g and (#c.g < 18 or byte(c.g) ~= 1) then return nil, 'DRAWGATE unknown history' end
  r.last, r.ttl = last, ttl
  if flags % 2 == 1 then r.m, r.next, r.ends, p = unpack_(F'open', h, p) end
  if not (r.m >= 0 and r.m <= 16777216 and r.m % 1 == 0) then return nil, 'DRAWGATE wrong number of reservations' end
  if flags >= 2 then r.pause, r.why, p = unpack_(F'paused', h, p) end
  while p <= #h do
    local s, kind = { held = 0, loose = 0, peak = 0, used = 0, ahead = 0 }
    s.id, kind, p = unpack_(F'limit', h, p)
    s.kind = kind % 16
    if kind >= 64 then
      return nil, 'DRAWGATE unknown kind of limit ' .. kind
    elseif s.kind == 1 then
      s.used, s.at, s.rate, s.win, p = unpack_(F'bucket', h, p)
      s.drain = gcd(s.rate, s.win)
      s.scale, s.drain = s.win / s.drain, s.rate / s.drain
    elseif s.kind == 2 then
      s.win, s.used, s.head, s.tail, s.first, s.lst, s.n, s.old, p = unpack_(F'rolling', h, p)
      if not (s.head >= 0 and s.tail <= MAX and s.head <= s.tail + 1 and s.head % 1 == 0 and s.tail % 1 == 0) then
        return nil, 'DRAWGATE wrong numbers of entries'
      end
    elseif s.kind == 3 then
      s.used, s.at, s.fin, s.nxt, s.aft, p = unpack_(F'calendar', h, p)
    elseif s.kind ~= 4 then
      return nil, 'DRAWGATE unknown kind of limit ' .. kind
    end
    if kind % 32 >= 16 then s.held, s.loose, s.peak, p = unpack_(F'held', h, p) end
    if kind >= 32 then s.ahead, p = unpack_(F'ahead', h, p) end
    r.ls[#r.ls + 1], r.by[s.id] = s, s
  end
  return r
end
