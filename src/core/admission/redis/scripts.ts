import { redisScript, type RedisScript } from '#base/redis/redis.ts';

/**
 * Scripts of admission, which run inside Redis. Each is all or nothing and takes Redis' TIME as the clock. The first
 * argument is a deadline in that time, in milliseconds, after which the caller has given up: a script then does nothing
 * and replies `late`. The second entry of every reply is Redis' time.
 *
 * Arguments come as one text of lines, none of them empty, and so does the reply: each value that the protocol frames
 * costs the gateway more than Lua needs to split the text.
 *
 * Money is whole micro-dollars as decimal strings, changed only by HINCRBY. Lua's numbers compare it and add up the
 * holds of one call, which is exact up to 2^53; balances and their holds are kept below that. The part of a balance
 * beyond whole micro-dollars is stored beside it as a number of pico-dollars below a million.
 *
 * Keys, all of one organization under one hash tag:
 *  wallet   hash   b: micro-dollars, r: pico-dollars beyond them, at: when they were read from the database, i: the
 *                  server's identity at that time; if missing, or of another server, the database must be asked
 *  holds    hash   request → "key gateway estimate reserved window limit"; request:w → 1 if the balance has its charge;
 *                  request:m → "month reserved" if the month's count has its reservation; request:s → 1 if it is
 *                  durable, but not in the database: only the database ends the hold, and it has no slot. Estimate and
 *                  reserved are then the used tokens
 *  money    hash   request → micro-dollars held; total → their sum
 *  leases   zset   request → when its gateway must have renewed it
 *  use      hash   of a key: s window's start, n requests, t tokens, m tokens of the month mm, mt: when they were read
 *                  from the database, a: 1 active, 0 revoked; m and a are valid for the server whose identity is i
 *  slots    zset   of a key: request → when its slot expires
 *  budgets  hash   of all hard budgets: see redis-budget-scripts.ts, also for request:b of holds and h:slot of money
 *  models   hash   of all limits of projects, and days: see redis-model-scripts.ts, also for request:l of holds
 *  loading  string identity and token of current readers of the database; deleted when their result may be outdated
 *  told     string of a key and a gateway: the last message of requests that it admitted instead of Redis
 *  known    string identity of the server that has got the holds of every gateway
 */

export function script(body: string): RedisScript {
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

/**
 * Returns the id of the history of writes that a server continues. The id changes when the server starts, and when it
 * replaces another one as master. Data that was written under another id may lack its last writes.
 * https://redis.io/docs/latest/operate/oss_and_stack/management/replication/
 */
export const identity = `
local function identity()
  return string.match(redis.call('INFO', 'replication'), 'master_replid:(%w+)') or '-'
end
`;

/** Milliseconds after which a balance is read again, so that changes made outside all gateways show up. */
const balanceGoodForMs = 60_000;

/** True if a balance must be read again: it was read before `notBefore`, or long ago. */
export const age = `
local function isOld(at, notBefore)
  at = tonumber(at)
  return at < tonumber(notBefore) or math.abs(now - at) >= ${balanceGoodForMs}
end
`;

/**
 * True if the tokens of a key's month `mm` are known; `mt` is when they were read from the database. A read before
 * `notBefore` may miss charges of a gateway that decided instead of Redis and ended. Without `notBefore`, no read is
 * too old.
 */
export const monthKnown = `
local function knowsMonth(mm, mt, month, notBefore)
  return mm == month and (notBefore == nil or tonumber(mt or '0') >= notBefore)
end
`;

/** The rules of limits in core/limits, word by word: see rollWindow there. */
export const windows = `
local function roll(s, n, t, limit)
  if s == 0 then return s, n, t end
  if now < s then s = now end
  local gone = math.floor((now - s) / 60000)
  if gone < 1 then return s, n, t end
  t = math.max(0, t - gone * (limit or t))
  if t > 0 then return s + gone * 60000, 0, t end
  return 0, 0, 0
end
`;

/** Milliseconds after which an unused balance is forgotten. */
export const walletTtlMs = 24 * 3_600_000;
/** Milliseconds after which unused data of a key is forgotten: longer than a month. */
export const useTtlMs = 35 * 24 * 3_600_000;
export const loadingTtlMs = 60_000;
export const knownTtlMs = 24 * 3_600_000;

/** Part of scripts that read the database into Redis. KEYS[2] are the holds, KEYS[3] the token of current readers. */
export const requestsHeld = `${identity}
local me = identity()
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
  local of, given = string.match(running or '', '^(%S+) (%S+)$')
  if of == me then return given end
  redis.call('SET', KEYS[3], me .. ' ' .. ARGV[2], 'PX', ${loadingTtlMs})
  return ARGV[2]
end
local function isOutdated() return redis.call('GET', KEYS[3]) ~= me .. ' ' .. ARGV[2] end
`;
