import { script, windows } from './redis-scripts.ts';

/**
 * KEYS wallet holds money leases use slots loading monthLoading
 * ARGV deadline (request chargedMicro chargedPico tokens how)…
 *
 * `how` is one of
 *   settle  takes the hold away for what the books have charged
 *   replay  the same by another gateway than the request's own
 *   sweep   the same, but leaves everything as it is when there is no such hold
 *   spool   the request is durable and not in the books yet: what it will be charged stays held, all else is given back
 *   undo    takes an admission back that nobody was told of, its counted request as well
 *
 * A charge without a hold means that this memory has lost something: it forgets the balance and the month, so that the
 * books are asked again. So does a balance that would be below zero: the books charge no more than there is.
 */
export const settleScript = script(`${windows}
local function forget()
  redis.call('DEL', KEYS[1], KEYS[7], KEYS[8])
  redis.call('HDEL', KEYS[5], 'mm')
end
local function hold(id, micro)
  local more = tonumber(micro) - tonumber(redis.call('HGET', KEYS[3], id) or '0')
  redis.call('HSET', KEYS[3], id, micro)
  redis.call('HINCRBY', KEYS[3], 'total', text(more))
end
local function charge(micro, pico)
  local rest = redis.call('HGET', KEYS[1], 'r')
  if not rest then return end
  if micro ~= '0' then redis.call('HINCRBY', KEYS[1], 'b', '-' .. micro) end
  rest = tonumber(rest) - tonumber(pico)
  if rest < 0 then
    rest = rest + 1000000
    redis.call('HINCRBY', KEYS[1], 'b', '-1')
  end
  redis.call('HSET', KEYS[1], 'r', text(rest))
  if tonumber(redis.call('HGET', KEYS[1], 'b')) < 0 then redis.call('DEL', KEYS[1]) end
end
local function count(note, month, tokens, how)
  local reserved, began, limit = string.match(note, '^%S+ %S+ %S+ (%S+) (%S+) (%S+)$')
  local use = redis.call('HMGET', KEYS[5], 's', 'n', 't', 'm', 'mm')
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
local function spool(id, note, month, micro, pico, tokens)
  hold(id, text(tonumber(micro) + (pico ~= '0' and 1 or 0)))
  local of, window = string.match(note, '^(%S+ %S+) %S+ %S+ (%S+ %S+)$')
  redis.call('HSET', KEYS[2], id, of .. ' ' .. tokens .. ' ' .. tokens .. ' ' .. window, id .. ':s', '1')
  if month then
    redis.call('HSET', KEYS[2], id .. ':m', string.match(month, '^%S+') .. ' ' .. tokens)
  end
end
local function settle(id, micro, pico, used, how)
  local noted = redis.call('HMGET', KEYS[2], id, id .. ':w', id .. ':m', id .. ':s')
  local note, billed, month, spooled = noted[1], noted[2], noted[3], noted[4]
  if not note then
    if how == 'settle' or how == 'replay' then forget() end
    return
  end
  if how == 'spool' and spooled then return end
  count(note, month, tonumber(used), how)
  redis.call('ZREM', KEYS[6], id)
  if how == 'spool' then return spool(id, note, month, micro, pico, used) end
  hold(id, '0')
  redis.call('HDEL', KEYS[3], id)
  redis.call('HDEL', KEYS[2], id, id .. ':w', id .. ':m', id .. ':s')
  redis.call('ZREM', KEYS[4], id)
  redis.call('DEL', KEYS[7], KEYS[8])
  if not billed then charge(micro, pico) end
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
  local noted = redis.call('HMGET', KEYS[1], id, id .. ':s')
  if noted[1] then redis.call('ZADD', KEYS[2], ends, id) else table.insert(reply, id) end
  if noted[1] and not noted[2] then redis.call('ZADD', KEYS[3], ends, id) end
end
return reply
`);

/**
 * Puts what a gateway has running into a memory that has lost it, or that knows less of it. What was read of the books
 * meanwhile is outdated.
 * KEYS wallet holds money leases slots loading monthLoading use · ARGV deadline leaseMs (request note micro spooled)…
 */
export const registerScript = script(`
local ends = text(now + tonumber(ARGV[2]))
local added = 0
for index = 3, #ARGV, 4 do
  local id = ARGV[index]
  added = added + redis.call('HSETNX', KEYS[2], id, ARGV[index + 1])
  local more = tonumber(ARGV[index + 2]) - tonumber(redis.call('HGET', KEYS[3], id) or '0')
  if more > 0 then
    redis.call('HINCRBY', KEYS[3], id, text(more))
    redis.call('HINCRBY', KEYS[3], 'total', text(more))
  end
  redis.call('ZADD', KEYS[4], ends, id)
  if ARGV[index + 3] == '1' then
    redis.call('HSET', KEYS[2], id .. ':s', '1')
    redis.call('ZREM', KEYS[5], id)
  else
    redis.call('ZADD', KEYS[5], ends, id)
  end
end
if added > 0 then
  redis.call('DEL', KEYS[1], KEYS[6], KEYS[7])
  redis.call('HDEL', KEYS[8], 'mm')
end
return {'ok', now, added}
`);

/** What no gateway has renewed in time. KEYS leases holds · ARGV deadline most · Reply: (request note spooled)… */
export const expiredScript = script(`
local reply = {'ok', now}
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', text(now), 'LIMIT', 0, tonumber(ARGV[2]))) do
  local noted = redis.call('HMGET', KEYS[2], id, id .. ':s')
  if noted[1] then
    table.insert(reply, id)
    table.insert(reply, noted[1])
    table.insert(reply, noted[2] or '0')
  else
    redis.call('ZREM', KEYS[1], id)
  end
end
return reply
`);
