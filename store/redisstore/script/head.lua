-- One decision on the buckets KEYS. It reads everything, decides, and writes last. A refusal writes
-- nothing, unless advancing a record for this caller changes what others would find, or is much
-- work that others would have to do again.
--
-- It is the counterpart of internal/record, function by function: see there for what is not
-- explained here. Numbers are doubles. All stored numbers stay below 2^53. Where an intermediate
-- value may not, both sides of the comparison are far apart.
--
-- A bucket is a hash:
--   h            the header: format, flags, latest instant, instant until which the TTL is set;
--                if reservations are open (flag 1): their number, an instant before which no hold
--                ends, one after which none does;
--                if it is paused (flag 2): until when, and the reason;
--                then the limits, each with its identity and kind (+ 16 if units of it are held,
--                or may be given back; + 32 if a bucket's units were granted ahead).
--                A program that does not know all of this, flags included, must not guess
--   e<limit><n>  entry n of a rolling limit; the newest one is in the header instead
--   o<n>         open reservation n, counted from 1 without gaps
--   i<id>        the number of an open reservation
--   x<c>         the ends of 64 open reservations: those from 64c+1 on
--   u<limit><c>  what they hold of a limit; what is missing at the end is nothing
--   k            the key's parts, if the key itself is a digest
--   g            the record's history: see history.lua
--   r            grants that were recovered: see recover.lua
--   p            reservations whose hold has ended: see past.lua
--   l            the tickets of those who wait: see line.lua. A bucket may have it alone
-- Programs that do not know a field keep it.
--
-- Expired entries of rolling limits: a call removes at most MOST of them, the oldest first, because
-- tens of thousands keep the server busy for a tenth of a second and more. The header says which
-- entry is the oldest. Those that are left still count as used, until later calls remove them. So
-- what a record says is used is never less than what is used.
--   A take that fits is granted. If it does not, and there are expired entries left in a limit that
-- does not let it pass, it is undecided: what was removed is written, and the caller sends the take
-- again. So a take is refused only by what really is used, and its wait is right. What remains of
-- a limit that lets a take pass may be more than the answer says.
--   Settlements remove at most MOST as well. A refund takes no units from expired entries. A peek
-- has no such bound, because it writes nothing and its answer is exact.
--
-- The instants of a record's writes increase strictly, by STEP at least, whatever the server's
-- clock shows: so they say which writes a server has lost. All writes of a call have one instant.
--
-- ARGV[1] is the operation, ARGV[2] the first bucket's request, ARGV[3] the generation of the
-- server after 8 bytes that do not matter here, and what the caller knows of each record's history
-- if it wants to know more; wire.go describes them.
local call = redis.call
local op, blob = ARGV[1], ARGV[2]
local time = call('TIME')
local raw = time[1] * 1000000 + time[2]
local pack, unpack_ = struct.pack, struct.unpack
local MAX = 9007199254740991
local MOST = 1000
local STEP = 1
local past = ARGV[3]
local sub, byte = string.sub, string.byte
local gen = sub(past, 9, 16)
local NONE = '\0\0\0\0\0\0\0\0' -- the generation of a server that does not say which it is

-- Returns the instant until which a key lives that is needed until need. It is later by a quarter
-- of the need, between a minute and a day, so that the TTL need not be set for each take.
local function keep(need)
  local slack = (need - raw) / 4
  if slack < 6e7 then slack = 6e7 elseif slack > 8.64e10 then slack = 8.64e10 end
  local ttl = math.floor(need + slack)
  if ttl > MAX then ttl = MAX end
  return ttl
end
