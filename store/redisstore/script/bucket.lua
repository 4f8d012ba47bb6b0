-- Limits of kind bucket.

-- a * b / c rounded up, at most MAX. It splits a into digits of seven bits: no double rounds as
-- long as b and c are below 2^45, which is a year in µs.
local function mulDivUp(a, b, c)
  local q, rest, digit = 0, 0, 2 ^ 49
  while digit >= 1 do
    local d = floor(a / digit)
    a = a - d * digit
    local x = rest * 128 + d * b
    rest = math.fmod(x, c)
    q = q * 128 + (x - rest) / c
    digit = digit / 128
  end
  if rest > 0 then q = q + 1 end
  return min(q, MAX)
end

local function rescale(used, from, to)
  if from == to or used == 0 then return used end
  local units = floor(used / from)
  return min(min(units * to, MAX) + mulDivUp(used - units * from, to, from), MAX)
end

local function adopt(st, s)
  st.used = rescale(st.used, st.scale, s.scale)
  st.rate, st.scale, st.drain = s.rate, s.scale, s.drain
  if st.peak > 0 then st.peak = max(st.peak, s.rate) end
end

local function leak(st, s, now)
  if s.rate < st.rate then adopt(st, s) end
  local dt = now - st.at
  if dt > 0 then
    st.used = max(0, st.used - dt * st.drain)
    st.at = now
  end
end

local function drain(st, s, now)
  if not s then
    st.at = max(st.at, now)
    return
  end
  if s.rate ~= st.rate then
    leak(st, s, now)
    local old = st.rate
    adopt(st, s)
    if st.ahead > now and st.rate > old then
      st.used = min(st.used + mulDivUp(st.ahead - now, st.rate - old, st.win / st.scale), MAX)
    end
    return
  end
  local dt = now - st.at
  if dt > 0 then
    st.used = max(0, st.used - dt * st.drain)
    st.at = now
  end
end

-- The most that may drain in so many µs.
local function drained(st, dt)
  local per = st.win / st.scale
  if st.peak <= st.rate then return dt * (st.rate / per) end
  return mulDivUp(dt, st.peak, per)
end

local function spared(st, parts, at)
  if st.ahead <= at then return parts end
  return max(0, parts - drained(st, st.ahead - at))
end

local function settleBucket(st, q, n)
  if n >= q.n then
    st.used = min(st.used + min((n - q.n) * st.scale, MAX), MAX)
    return
  end
  local undrained = max(0, min(q.n * st.scale, MAX) - drained(st, max(0, max(now, st.ahead) - q.ref)))
  st.used = max(0, st.used - min((q.n - n) * st.scale, MAX, undrained))
end
