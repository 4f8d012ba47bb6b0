-- Writes documents, fields of the hash KEYS[1], if one of them is as it should be. ARGV: the name
-- and the value of that one, and of each that is written; an empty value is none. Returns 1 if it
-- wrote.
if (redis.call('HGET', KEYS[1], ARGV[1]) or '') ~= ARGV[2] then return 0 end
for i = 3, #ARGV, 2 do
  if ARGV[i + 1] == '' then
    redis.call('HDEL', KEYS[1], ARGV[i])
  else
    redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
  end
end
return 1
