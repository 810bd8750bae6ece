"""What happens in a Redis server in one step, as Lua. Effects of a script are all there or none, also in its log.

A stream NAME has these keys beside it: `NAME.sent` and `NAME.done`, the ids that were sent and scored with the time of
it (sorted sets), and `NAME.dead`, a stream of what could not be scored.
"""

SEND = """
if redis.call('ZSCORE', KEYS[2], ARGV[1]) then return 0 end
if redis.call('XLEN', KEYS[1]) >= tonumber(ARGV[3]) then return -1 end
redis.call('ZADD', KEYS[2], redis.call('TIME')[1], ARGV[1])
redis.call('XADD', KEYS[1], '*', 'id', ARGV[1], 'image', ARGV[2])
return 1
"""
"""Keys: stream, sent. Arguments: id, image, most entries. 1: sent; 0: that was sent before; -1: the stream is full."""

FINISH = """
local new = redis.call('ZADD', KEYS[2], 'NX', redis.call('TIME')[1], ARGV[3])
if new == 1 then redis.call('XADD', KEYS[3], '*', unpack(ARGV, 4)) end
redis.call('XACK', KEYS[1], ARGV[1], ARGV[2])
redis.call('XDEL', KEYS[1], ARGV[2])
return new
"""
"""Keys: stream, done, results. Arguments: group, entry, id, fields and values of the result. 1: the result is there
now; 0: it was there before. Either way the entry is gone."""

BURY = """
local found = redis.call('XRANGE', KEYS[1], ARGV[2], ARGV[2])[1]
if found then
  redis.call('XADD', KEYS[2], '*', 'entry', ARGV[2], 'reason', ARGV[3], unpack(found[2]))
end
redis.call('XACK', KEYS[1], ARGV[1], ARGV[2])
redis.call('XDEL', KEYS[1], ARGV[2])
"""
"""Keys: stream, dead. Arguments: group, entry, reason."""

TAKE_OVER = """
local pending = redis.call('XPENDING', KEYS[1], ARGV[1], 'IDLE', ARGV[3], '-', '+', ARGV[4])
local taken, buried = {}, 0
for _, one in ipairs(pending) do
  local entry, deliveries = one[1], one[4]
  if deliveries >= tonumber(ARGV[5]) then
    local found = redis.call('XRANGE', KEYS[1], entry, entry)[1]
    if found then
      local reason = 'it was delivered ' .. deliveries .. ' times, and whoever had it died'
      redis.call('XADD', KEYS[2], '*', 'entry', entry, 'reason', reason, unpack(found[2]))
      redis.call('XDEL', KEYS[1], entry)
      buried = buried + 1
    end
    redis.call('XACK', KEYS[1], ARGV[1], entry)
  elseif #taken == 0 then
    taken = redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], ARGV[3], entry)
  end
end
return {buried, taken}
"""
"""Keys: stream, dead. Arguments: group, consumer, milliseconds since an entry was last cared for, most entries to look
at, deliveries after which an entry is buried. Number of those buried, and at most one entry that is ours now: what may
have killed a worker is tried alone."""

LEAVE = """
if #redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', 1, ARGV[2]) == 0 then
  redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], ARGV[2])
end
"""
"""Key: stream. Arguments: group, consumer, which goes unless something was delivered to it: that would go with it."""

FORGET = """
local before = redis.call('TIME')[1] - ARGV[1]
for _, key in ipairs(KEYS) do redis.call('ZREMRANGEBYSCORE', key, '-inf', '(' .. before) end
"""
"""Keys: sorted sets of ids. Argument: seconds for which they are remembered."""
