import { redisScript, type RedisScript } from '#base/redis.ts';

/**
 * The scripts of admission, which run inside Redis. Each is all or nothing and takes Redis' TIME as the clock. The first
 * argument is a deadline in that time, in milliseconds, after which the caller has given up: a script then does nothing
 * and replies `late`. The second entry of every reply is Redis' time.
 *
 * Arguments come as one text of lines, none of them empty, and so does the reply: each value that the protocol frames
 * costs the gateway more than Lua pays for taking the text apart.
 *
 * Money is whole micro-dollars as decimal strings, changed by HINCRBY alone. Lua's numbers compare it and add up the
 * holds of one call, which is exact up to 2^53, and balances and what is held of them are kept below that. What a
 * balance has beyond whole micro-dollars stands beside it as a number of pico-dollars below a million.
 *
 * Keys, all of one organization under one hash tag:
 *   wallet   hash   b: micro-dollars, r: pico-dollars beyond them; missing: the books must be asked
 *   holds    hash   request → "key gateway estimate reserved window limit"; request:w → 1 when the balance has its charge;
 *                   request:m → "month reserved" when the month's count has its reservation
 *   money    hash   request → micro-dollars held; total → their sum
 *   leases   zset   request → when its gateway must have renewed it
 *   use      hash   of a key: s window's start, n requests, t tokens, m tokens of the month mm, a: 1 active, 0 revoked
 *   slots    zset   of a key: request → when its slot comes back by itself
 *   loading  string token of whoever reads the books now; gone when what is read may be outdated
 */

function script(body: string): RedisScript {
  return redisScript(`
local lines = ARGV[1]
local ARGV = {}
for line in string.gmatch(lines, '[^\\n]+') do ARGV[#ARGV + 1] = line end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local function text(number) return string.format('%.0f', number) end
local function run()
if now > tonumber(ARGV[1]) then return {'late', now} end
${body}
end
return table.concat(run(), '\\n')
`);
}

/** The limits' rules of core/limits, word by word: see rollWindow there. */
const windows = `
local function roll(s, n, t, limit)
  if s == 0 then return s, n, t end
  local gone = math.floor((now - s) / 60000)
  if gone < 1 then return s, n, t end
  t = math.max(0, t - gone * (limit or t))
  if t > 0 then return s + gone * 60000, 0, t end
  return 0, 0, 0
end
`;

/** What Redis keeps of an API key lives so long after its last use: longer than a month. */
const useTtlMs = 35 * 24 * 3_600_000;
const loadingTtlMs = 60_000;
const knownTtlMs = 24 * 3_600_000;

/**
 * Admits requests of one key, in their order; each is all or nothing by itself.
 * KEYS wallet holds money leases use slots
 * ARGV deadline requestsPerMinute maxConcurrency tokensPerMinute monthlyTokens month nextMonth leaseMs gateway key
 *      (request needed wanted estimate dry)…
 * Reply: what must be known or done first, once for all; or ok, now, and a line for each request: "word…" with the use
 * that it met, or "ok" with the use that there is now, hold and reserved tokens.
 */
export const admitScript = script(`${windows}
local rpm, most, tpm, monthly = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local use = redis.call('HMGET', KEYS[5], 's', 'n', 't', 'm', 'mm', 'a')
if use[6] == '0' then return {'revoked', now} end
if not use[6] then return {'key', now} end
local wallet = redis.call('HMGET', KEYS[1], 'b', 'r')
if not wallet[1] then return {'wallet', now} end
if now < tonumber(ARGV[6]) or now >= tonumber(ARGV[7]) then return {'clock', now} end
local counted = use[5] == ARGV[6]
if monthly and not counted then return {'month', now} end

local s, n, t = roll(tonumber(use[1] or 0), tonumber(use[2] or 0), tonumber(use[3] or 0), tpm)
local m = counted and tonumber(use[4] or 0) or 0
local running = redis.call('ZCOUNT', KEYS[6], '(' .. text(now), '+inf')
local held = tonumber(redis.call('HGET', KEYS[3], 'total') or '0')
local balance = tonumber(wallet[1])
local isEmpty = not (balance > 0 or (balance == 0 and tonumber(wallet[2]) > 0))
local function used() return text(s) .. ' ' .. text(n) .. ' ' .. text(t) .. ' ' .. text(m) .. ' ' .. text(running) end
local function reserve(estimate, limit) if limit then return math.min(estimate, limit) end return 0 end
local function refused(estimate)
  if monthly and m + reserve(estimate, monthly) > monthly then return 'monthly_quota_exceeded' end
  if rpm and n >= rpm then return 'rate_limit_exceeded' end
  if tpm and t + reserve(estimate, tpm) > tpm then return 'tokens_limit_exceeded' end
  if most and running >= most then return 'concurrency_limit_exceeded' end
end

local begins, sum, ends = false, 0, text(now + tonumber(ARGV[8]))
local tail = ' ' .. ARGV[9] .. ' '
local notes, holds, due = {}, {}, {}
local function take(id, wanted, estimate)
  local hold = math.min(tonumber(wanted), balance - held)
  if n == 0 then s, begins = now, true end
  local reserved, month = reserve(estimate, tpm), reserve(estimate, monthly)
  n, t, running, held, sum = n + 1, t + reserved, running + 1, held + hold, sum + hold
  notes[#notes + 1] = id
  notes[#notes + 1] = ARGV[10] .. tail .. text(estimate) .. ' ' .. text(reserved) .. ' ' .. text(s) .. ' ' .. (tpm and text(tpm) or '-')
  if counted then
    m = m + month
    notes[#notes + 1] = id .. ':m'
    notes[#notes + 1] = ARGV[6] .. ' ' .. text(month)
  end
  holds[#holds + 1] = id
  holds[#holds + 1] = text(hold)
  due[#due + 1] = ends
  due[#due + 1] = id
  return 'ok ' .. used() .. ' ' .. text(hold) .. ' ' .. text(reserved)
end
local function decide(id, needed, wanted, estimate, dry)
  if isEmpty or balance - held < tonumber(needed) then
    return 'insufficient_funds ' .. wallet[1] .. ' ' .. wallet[2] .. ' ' .. text(held)
  end
  estimate = tonumber(estimate)
  local why = refused(estimate)
  if why then return why .. ' ' .. used() end
  if dry == '1' then return 'ok ' .. used() .. ' ' .. text(math.min(tonumber(wanted), balance - held)) .. ' 0' end
  return take(id, wanted, estimate)
end

local reply = {'ok', now}
for index = 11, #ARGV, 5 do reply[#reply + 1] = decide(unpack(ARGV, index, index + 4)) end
if #due == 0 then return reply end
if counted then redis.call('HSET', KEYS[5], 's', text(s), 'n', text(n), 't', text(t), 'm', text(m))
else redis.call('HSET', KEYS[5], 's', text(s), 'n', text(n), 't', text(t)) end
redis.call('HSET', KEYS[2], unpack(notes))
redis.call('HSET', KEYS[3], unpack(holds))
redis.call('HINCRBY', KEYS[3], 'total', text(sum))
redis.call('ZADD', KEYS[4], unpack(due))
redis.call('ZADD', KEYS[6], unpack(due))
if begins then
  redis.call('ZREMRANGEBYSCORE', KEYS[6], '-inf', text(now))
  redis.call('PEXPIRE', KEYS[6], ${useTtlMs})
  redis.call('PEXPIRE', KEYS[5], ${useTtlMs})
end
return reply
`);

/** KEYS use slots · ARGV deadline tokensPerMinute */
export const viewScript = script(`${windows}
local use = redis.call('HMGET', KEYS[1], 's', 'n', 't')
local s, n, t = roll(tonumber(use[1] or 0), tonumber(use[2] or 0), tonumber(use[3] or 0), tonumber(ARGV[2]))
return {'ok', now, text(s), text(n), text(t), '0', '0'}
`);

/** KEYS wallet money · ARGV deadline request more. Says what was added. */
export const extendScript = script(`
if redis.call('HEXISTS', KEYS[2], ARGV[2]) == 0 then return {'gone', now} end
local balance = redis.call('HGET', KEYS[1], 'b')
if not balance then return {'wallet', now} end
local available = tonumber(balance) - tonumber(redis.call('HGET', KEYS[2], 'total') or '0')
if available <= 0 then return {'ok', now, '0'} end
local more = ARGV[3]
if available < tonumber(more) then more = text(available) end
redis.call('HINCRBY', KEYS[2], ARGV[2], more)
redis.call('HINCRBY', KEYS[2], 'total', more)
return {'ok', now, more}
`);

/**
 * KEYS wallet holds money leases use slots loading monthLoading
 * ARGV deadline (request chargedMicro chargedPico tokens how)…
 * `how`: `settle`; `undo` for an admission whose answer was lost, which uncounts the request as well; `sweep`, which
 * does nothing where there is no such hold. With `settle` a missing hold means that Redis lost data: the balance and the
 * month are deleted, so that they are read from PostgreSQL again.
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
 * Writes the holds of a gateway into a Redis that lost them. A reading of the books that is under way becomes void.
 * KEYS wallet holds money leases slots loading monthLoading use · ARGV deadline leaseMs (request note micro)…
 */
export const registerScript = script(`
local ends = text(now + tonumber(ARGV[2]))
local added = 0
for index = 3, #ARGV, 3 do
  local id = ARGV[index]
  if redis.call('HSETNX', KEYS[2], id, ARGV[index + 1]) == 1 then
    added = added + 1
    redis.call('HSET', KEYS[3], id, ARGV[index + 2])
    redis.call('HINCRBY', KEYS[3], 'total', ARGV[index + 2])
    redis.call('ZADD', KEYS[4], ends, id)
    redis.call('ZADD', KEYS[5], ends, id)
  end
end
if added > 0 then
  redis.call('DEL', KEYS[1], KEYS[6], KEYS[7])
  redis.call('HDEL', KEYS[8], 'mm')
end
return {'ok', now, added}
`);

const requestsHeld = `
local function held(of)
  local found = {}
  local all = redis.call('HGETALL', KEYS[2])
  for index = 1, #all, 2 do
    local key = string.match(all[index + 1], '^(%S+) %S+ %S+ %S+ %S+ %S+$')
    if key and not string.find(all[index], ':', 1, true) and (of == nil or key == of) then
      table.insert(found, all[index])
    end
  end
  return found
end
local function token()
  local running = redis.call('GET', KEYS[3])
  if running then return running end
  redis.call('SET', KEYS[3], ARGV[2], 'PX', ${loadingTtlMs})
  return ARGV[2]
end
`;

/**
 * Begins a reading of a balance. Gateways that read at the same time share a token; every settlement, credit or
 * registration deletes it. KEYS wallet holds loading known · ARGV deadline token
 * Reply: begin, now, token, whether Redis has the organization's holds, held requests…
 */
export const beginWalletScript = script(`${requestsHeld}
if redis.call('EXISTS', KEYS[1]) == 1 then return {'there', now} end
local reply = {'begin', now, token(), redis.call('EXISTS', KEYS[4])}
for _, id in ipairs(held(nil)) do table.insert(reply, id) end
return reply
`);

/** KEYS wallet holds loading known · ARGV deadline token micro pico ttlMs (request whose charge the balance has)… */
export const endWalletScript = script(`
if redis.call('EXISTS', KEYS[1]) == 1 then return {'there', now} end
if redis.call('GET', KEYS[3]) ~= ARGV[2] then return {'again', now} end
for index = 6, #ARGV do
  if redis.call('HEXISTS', KEYS[2], ARGV[index]) == 1 then redis.call('HSET', KEYS[2], ARGV[index] .. ':w', '1') end
end
redis.call('HSET', KEYS[1], 'b', ARGV[3], 'r', ARGV[4])
redis.call('PEXPIRE', KEYS[1], ARGV[5])
redis.call('SET', KEYS[4], '1', 'PX', ${knownTtlMs})
redis.call('DEL', KEYS[3])
return {'ok', now}
`);

/** The same for a key's month. KEYS use holds monthLoading · ARGV deadline token month key */
export const beginMonthScript = script(`${requestsHeld}
if redis.call('HGET', KEYS[1], 'mm') == ARGV[3] then return {'there', now} end
local reply = {'begin', now, token(), 1}
for _, id in ipairs(held(ARGV[4])) do table.insert(reply, id) end
return reply
`);

/** KEYS use holds monthLoading · ARGV deadline token month key tokens limit (request that the count has)… */
export const endMonthScript = script(`${requestsHeld}
if redis.call('HGET', KEYS[1], 'mm') == ARGV[3] then return {'there', now} end
if redis.call('GET', KEYS[3]) ~= ARGV[2] then return {'again', now} end
local counted = {}
for index = 7, #ARGV do counted[ARGV[index]] = true end
local sum = tonumber(ARGV[5])
for _, id in ipairs(held(ARGV[4])) do
  if counted[id] then
    redis.call('HDEL', KEYS[2], id .. ':m')
  else
    local estimate = string.match(redis.call('HGET', KEYS[2], id), '^%S+ %S+ (%S+)')
    local reserved = math.min(tonumber(estimate), tonumber(ARGV[6]))
    sum = sum + reserved
    redis.call('HSET', KEYS[2], id .. ':m', ARGV[3] .. ' ' .. text(reserved))
  end
end
redis.call('HSET', KEYS[1], 'm', text(sum), 'mm', ARGV[3])
redis.call('PEXPIRE', KEYS[1], ${useTtlMs})
redis.call('DEL', KEYS[3])
return {'ok', now}
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
