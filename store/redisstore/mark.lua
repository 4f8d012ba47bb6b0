-- Makes the store's mark, KEYS[1], with the number ARGV[1], unless there is one. Returns its
-- number.
local id = redis.call('HGET', KEYS[1], 'id')
if id then return id end
redis.call('HSET', KEYS[1], 'id', ARGV[1], 'made', redis.call('TIME')[1])
return ARGV[1]
