-- Returns the time, and of the bucket KEYS[1] the header and the open reservation ARGV[1]. It reads
-- only: see script/head.lua for what the fields hold.
local k = redis.call('HGET', KEYS[1], 'i' .. ARGV[1])
return { redis.call('TIME'), redis.call('HGET', KEYS[1], 'h'), k and redis.call('HGET', KEYS[1], 'o' .. k) }
