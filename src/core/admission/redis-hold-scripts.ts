import { script, windows } from './redis-scripts.ts';

/**
 * KEYS wallet holds money leases use slots loading monthLoading
 * ARGV deadline (request chargedMicro chargedPico tokens how)…
 * `how`: `settle`; `undo` for an admission that nobody was told of, which takes its request back as well; `sweep`, which
 * leaves everything as it is when there is no such hold. Otherwise a charge without a hold means that this memory has
 * lost something: it forgets the balance and the month, so that the books are asked again. So does a balance that would
 * be below zero: the books charge no more than there is.
 */
export const settleScript = script(`${windows}
local function settle(id, micro, pico, used, how)
local noted = redis.call('HMGET', KEYS[2], id, id .. ':w', id .. ':m')
local note, billed, month = noted[1], noted[2], noted[3]
if not note then
  if how == 'settle' then
    redis.call('DEL', KEYS[1], KEYS[7], KEYS[8])
    redis.call('HDEL', KEYS[5], 'mm')
  end
  return
end
local held = redis.call('HGET', KEYS[3], id)
redis.call('HDEL', KEYS[2], id, id .. ':w', id .. ':m')
redis.call('HDEL', KEYS[3], id)
if held and held ~= '0' then redis.call('HINCRBY', KEYS[3], 'total', '-' .. held) end
redis.call('ZREM', KEYS[4], id)
redis.call('ZREM', KEYS[6], id)
redis.call('DEL', KEYS[7], KEYS[8])

local rest = not billed and redis.call('HGET', KEYS[1], 'r')
if rest then
  if micro ~= '0' then redis.call('HINCRBY', KEYS[1], 'b', '-' .. micro) end
  rest = tonumber(rest) - tonumber(pico)
  if rest < 0 then
    rest = rest + 1000000
    redis.call('HINCRBY', KEYS[1], 'b', '-1')
  end
  redis.call('HSET', KEYS[1], 'r', text(rest))
  if tonumber(redis.call('HGET', KEYS[1], 'b')) < 0 then redis.call('DEL', KEYS[1]) end
end

local reserved, began, limit = string.match(note, '^%S+ %S+ %S+ (%S+) (%S+) (%S+)$')
local use = redis.call('HMGET', KEYS[5], 's', 'n', 't', 'm', 'mm')
local tokens = tonumber(used)
local s, n, t = roll(tonumber(use[1] or 0), tonumber(use[2] or 0), tonumber(use[3] or 0), tonumber(limit))
local same = s == tonumber(began)
if limit ~= '-' then
  local beyond = tokens - tonumber(reserved)
  if beyond > 0 or same then t = math.max(0, t + beyond) end
  if s == 0 and t > 0 then s = now end
end
if how == 'undo' and same and n > 0 then n = n - 1 end
local m = use[4] or '0'
if month then
  local of, taken = string.match(month, '^(%S+) (%S+)$')
  if of == use[5] then m = text(math.max(0, tonumber(m) + tokens - tonumber(taken))) end
end
redis.call('HSET', KEYS[5], 's', text(s), 'n', text(n), 't', text(t), 'm', m)
end
for index = 2, #ARGV, 5 do settle(unpack(ARGV, index, index + 4)) end
return {'ok', now}
`);

/** KEYS holds leases slots · ARGV deadline leaseMs request… Says which requests it does not know. */
export const renewScript = script(`
local ends = text(now + tonumber(ARGV[2]))
local reply = {'ok', now}
for index = 3, #ARGV do
  local id = ARGV[index]
  if redis.call('HEXISTS', KEYS[1], id) == 1 then
    redis.call('ZADD', KEYS[2], ends, id)
    redis.call('ZADD', KEYS[3], ends, id)
  else
    table.insert(reply, id)
  end
end
return reply
`);

/**
 * Puts what a gateway has running into a memory that has lost it, or that knows less of it. What was read of the books
 * meanwhile is outdated.
 * KEYS wallet holds money leases slots loading monthLoading use · ARGV deadline leaseMs (request note micro)…
 */
export const registerScript = script(`
local ends = text(now + tonumber(ARGV[2]))
local added = 0
for index = 3, #ARGV, 3 do
  local id = ARGV[index]
  added = added + redis.call('HSETNX', KEYS[2], id, ARGV[index + 1])
  local more = tonumber(ARGV[index + 2]) - tonumber(redis.call('HGET', KEYS[3], id) or '0')
  if more > 0 then
    redis.call('HINCRBY', KEYS[3], id, text(more))
    redis.call('HINCRBY', KEYS[3], 'total', text(more))
  end
  redis.call('ZADD', KEYS[4], ends, id)
  redis.call('ZADD', KEYS[5], ends, id)
end
if added > 0 then
  redis.call('DEL', KEYS[1], KEYS[6], KEYS[7])
  redis.call('HDEL', KEYS[8], 'mm')
end
return {'ok', now, added}
`);

/** What no gateway has renewed in time. KEYS leases holds · ARGV deadline most · Reply: request, note, … */
export const expiredScript = script(`
local reply = {'ok', now}
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', text(now), 'LIMIT', 0, tonumber(ARGV[2]))) do
  local note = redis.call('HGET', KEYS[2], id)
  if note then
    table.insert(reply, id)
    table.insert(reply, note)
  else
    redis.call('ZREM', KEYS[1], id)
  end
end
return reply
`);
