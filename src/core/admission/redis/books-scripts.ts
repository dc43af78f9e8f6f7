import { age, identity, knownTtlMs, monthKnown, requestsHeld, script, useTtlMs, walletTtlMs } from './scripts.ts';

/**
 * Runs before the database is asked for a balance. Readers at the same time share a token, and every settlement, credit
 * or registration deletes it. KEYS wallet holds loading known · ARGV deadline token notBefore
 * Reply: begin, now, token, the server's identity, 1 if all gateways have sent it the organization's holds, held
 * requests…
 */
export const beginWalletScript = script(`${requestsHeld}${age}
local wallet = redis.call('HMGET', KEYS[1], 'i', 'at')
if wallet[1] == me and not isOld(wallet[2], ARGV[3]) then return {'there', now} end
local reply = {'begin', now, token(), me, redis.call('GET', KEYS[4]) == me and '1' or '0'}
for _, id in ipairs(held(nil)) do table.insert(reply, id) end
return reply
`);

/**
 * Stores a balance. KEYS wallet holds loading known · ARGV deadline token micro pico (request that the balance was
 * charged for)…
 */
export const endWalletScript = script(`${requestsHeld}
if isOutdated() then return {'again', now} end
for index = 5, #ARGV do
  if redis.call('HEXISTS', KEYS[2], ARGV[index]) == 1 then redis.call('HSET', KEYS[2], ARGV[index] .. ':w', '1') end
end
redis.call('HSET', KEYS[1], 'b', ARGV[3], 'r', ARGV[4], 'i', me, 'at', text(now))
redis.call('PEXPIRE', KEYS[1], ${walletTtlMs})
redis.call('SET', KEYS[4], me, 'PX', ${knownTtlMs})
redis.call('DEL', KEYS[3])
return {'ok', now}
`);

/**
 * Stores the state of a key from the database. A revocation stays, whoever reads meanwhile. KEYS use · ARGV deadline
 * active
 */
export const keyScript = script(`${identity}
local me = identity()
local use = redis.call('HMGET', KEYS[1], 'a', 'i')
if use[1] and use[2] == me then return {'there', now} end
redis.call('HSET', KEYS[1], 'a', use[1] == '0' and '0' or ARGV[2], 'i', me)
redis.call('HDEL', KEYS[1], 'mm')
return {'ok', now}
`);

/**
 * Does the same as beginWalletScript for a key's month. KEYS use holds monthLoading · ARGV deadline token month key
 * notBefore
 */
export const beginMonthScript = script(`${requestsHeld}${monthKnown}
local use = redis.call('HMGET', KEYS[1], 'mm', 'i', 'mt')
if knowsMonth(use[1], use[3], ARGV[3], tonumber(ARGV[5])) or use[2] ~= me then return {'there', now} end
local reply = {'begin', now, token(), me, '1'}
for _, id in ipairs(held(ARGV[4])) do table.insert(reply, id) end
return reply
`);

/**
 * Stores the tokens of a key's month. KEYS use holds monthLoading · ARGV deadline token month key notBefore tokens
 * limit (request that the count includes, or that does not belong to it)…
 */
export const endMonthScript = script(`${requestsHeld}${monthKnown}
local use = redis.call('HMGET', KEYS[1], 'mm', 'i', 'mt')
if knowsMonth(use[1], use[3], ARGV[3], tonumber(ARGV[5])) or use[2] ~= me then return {'there', now} end
if isOutdated() then return {'again', now} end
local counted = {}
for index = 8, #ARGV do counted[ARGV[index]] = true end
local sum = tonumber(ARGV[6])
for _, id in ipairs(held(ARGV[4])) do
  if counted[id] then
    redis.call('HDEL', KEYS[2], id .. ':m')
  else
    local estimate = string.match(redis.call('HGET', KEYS[2], id), '^%S+ %S+ (%S+)')
    local reserved = math.min(tonumber(estimate), tonumber(ARGV[7]))
    sum = sum + reserved
    redis.call('HSET', KEYS[2], id .. ':m', ARGV[3] .. ' ' .. text(reserved))
  end
end
redis.call('HSET', KEYS[1], 'm', text(sum), 'mm', ARGV[3], 'mt', text(now))
redis.call('PEXPIRE', KEYS[1], ${useTtlMs})
redis.call('DEL', KEYS[3])
return {'ok', now}
`);
