import { budgetParts } from './budget-scripts.ts';
import { modelParts } from './model-scripts.ts';
import { age, identity, monthKnown, script, useTtlMs, windows } from './scripts.ts';

/** Additional script code for requests of which some have budgets or limits of their project. */
interface Parts {
  /** Number of fields of a request. */
  readonly fields: number;
  readonly read: string;
  readonly refuse: string;
  /** Runs after the checks of the key's limits. */
  readonly refuseByProject: string;
  readonly take: string;
  readonly amounts: string;
  readonly write: string;
  /** Expression that is appended to the use of the key. */
  readonly met: string;
}

const none: Parts = {
  fields: 5,
  read: '',
  refuse: '',
  refuseByProject: '',
  take: '',
  amounts: '',
  write: '',
  met: '',
};
const bound: Parts = {
  fields: 7,
  read: budgetParts.read + modelParts.read,
  refuse: budgetParts.refuse + modelParts.know,
  refuseByProject: modelParts.refuse,
  take: budgetParts.take + modelParts.take,
  amounts: budgetParts.said,
  write: budgetParts.write + modelParts.write,
  met: ' .. metOf(by)',
};

const knowLua = (parts: Parts): string => `${windows}${identity}${age}${monthKnown}
local rpm, most, tpm, monthly = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local use = redis.call('HMGET', KEYS[5], 's', 'n', 't', 'm', 'mm', 'a', 'i', 'mt')
if use[6] == '0' then return {'revoked', now} end
local me = identity()
if not use[6] or use[7] ~= me then return {'key', now} end
local wallet = redis.call('HMGET', KEYS[1], 'b', 'r', 'i', 'at')
if not wallet[1] or wallet[3] ~= me then return {'wallet', now} end
if ARGV[9] ~= '-' and isOld(wallet[4], ARGV[9]) then return {'wallet', now} end
if now < tonumber(ARGV[6]) or now >= tonumber(ARGV[7]) then return {'clock', now} end
local counted = knowsMonth(use[5], use[8], ARGV[6], tonumber(ARGV[9]))
if monthly and not counted then return {'month', now} end
${parts.read}
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

`;

const takeLua = (parts: Parts): string => `
local begins, sum, ends = false, 0, text(now + tonumber(ARGV[8]))
local tail = ' ' .. ARGV[10] .. ' '
local notes, holds, due = {}, {}, {}
local function take(id, wanted, estimate, free, of, by)
  local hold = math.min(tonumber(wanted), free)
  if n == 0 then s, begins = now, true end
  local reserved, month = reserve(estimate, tpm), math.min(estimate, monthly or estimate)
  n, t, running, held, sum = n + 1, t + reserved, running + 1, held + hold, sum + hold
  notes[#notes + 1] = id
  notes[#notes + 1] = ARGV[11] .. tail .. text(estimate) .. ' ' .. text(reserved) .. ' ' .. text(s) .. ' ' .. (tpm and text(tpm) or '-')
  if counted then
    m = m + month
    notes[#notes + 1] = id .. ':m'
    notes[#notes + 1] = ARGV[6] .. ' ' .. text(month)
  end
  holds[#holds + 1] = id
  holds[#holds + 1] = text(hold)
  due[#due + 1] = ends
  due[#due + 1] = id
${parts.take}${parts.amounts}
  return 'ok ' .. used() .. ' ' .. text(hold) .. ' ' .. text(reserved)${parts.amounts && ' .. said'}${parts.met}
end
`;

const decideLua = (parts: Parts): string => `
local function decide(id, needed, wanted, estimate, dry, of, by)
  local free = balance - held
  needed, estimate = tonumber(needed), tonumber(estimate)
  if needed > 0 and (isEmpty or free < needed) then
    return 'insufficient_funds ' .. wallet[1] .. ' ' .. wallet[2] .. ' ' .. text(held)
  end
${parts.refuse}
  free = math.max(0, free)
  local why = refused(estimate)
  if why then return why .. ' ' .. used()${parts.met} end
${parts.refuseByProject}
  if dry == '1' then return 'ok ' .. used() .. ' ' .. text(math.min(tonumber(wanted), free)) .. ' 0'${parts.met} end
  return take(id, wanted, estimate, free, of, by)
end

local reply = {'ok', now, ''}
for index = 12, #ARGV, ${parts.fields} do reply[#reply + 1] = decide(unpack(ARGV, index, index + ${parts.fields - 1})) end
reply[3] = wallet[1] .. ' ' .. wallet[2] .. ' ' .. text(held)
if #due == 0 then return reply end
if counted then redis.call('HSET', KEYS[5], 's', text(s), 'n', text(n), 't', text(t), 'm', text(m))
else redis.call('HSET', KEYS[5], 's', text(s), 'n', text(n), 't', text(t)) end
redis.call('HSET', KEYS[2], unpack(notes))
redis.call('HSET', KEYS[3], unpack(holds))
redis.call('HINCRBY', KEYS[3], 'total', text(sum))
${parts.write}
redis.call('ZADD', KEYS[4], unpack(due))
redis.call('ZADD', KEYS[6], unpack(due))
if begins then
  redis.call('ZREMRANGEBYSCORE', KEYS[6], '-inf', text(now))
  redis.call('PEXPIRE', KEYS[6], ${useTtlMs})
  redis.call('PEXPIRE', KEYS[5], ${useTtlMs})
end
return reply
`;

const admitLua = (parts: Parts): string => `${knowLua(parts)}${takeLua(parts)}${decideLua(parts)}`;

/**
 * Admits requests of one key, in their order; each is all or nothing by itself.
 * KEYS wallet holds money leases use slots, and budgets models days
 * ARGV deadline requestsPerMinute maxConcurrency tokensPerMinute monthlyTokens month nextMonth leaseMs notBefore
 * gateway key
 *      (request needed wanted estimate dry)… If one of them has budgets or limits of its project, each has two more
 *      fields: see budgetParts and modelParts
 * Reply: a word for what the caller must load or do first, for all requests; or ok, now, "micro pico held" of the
 * wallet after all of them, and a line for each request: "day" if the day of its model must be loaded first, "word…"
 * with the use that it met, or "ok" with the use after it, hold and reserved tokens. Budgets and the use of the model
 * follow.
 * A balance is asked for again if it was read before `notBefore`, or long ago; with "-" it never is. A month and a day
 * are asked for again if they were read before `notBefore`.
 */
export const admitScript = script(admitLua(none));
/** Does the same if some of the requests have budgets or limits of their project. */
export const admitBoundScript = script(admitLua(bound));

/** Returns the use of a key. KEYS use slots · ARGV deadline tokensPerMinute */
export const viewScript = script(`${windows}
local use = redis.call('HMGET', KEYS[1], 's', 'n', 't')
local s, n, t = roll(tonumber(use[1] or 0), tonumber(use[2] or 0), tonumber(use[3] or 0), tonumber(ARGV[2]))
return {'ok', now, text(s), text(n), text(t), '0', '0'}
`);

/**
 * Extends a hold, and returns the amount added: 0 if less than the least is available.
 * KEYS wallet money · ARGV deadline request more least
 */
export const extendScript = script(`${identity}
if redis.call('HEXISTS', KEYS[2], ARGV[2]) == 0 then return {'gone', now} end
local wallet = redis.call('HMGET', KEYS[1], 'b', 'i')
if not wallet[1] or wallet[2] ~= identity() then return {'wallet', now} end
local available = tonumber(wallet[1]) - tonumber(redis.call('HGET', KEYS[2], 'total') or '0')
if available <= 0 or available < tonumber(ARGV[4]) then return {'ok', now, '0'} end
local more = ARGV[3]
if available < tonumber(more) then more = text(available) end
redis.call('HINCRBY', KEYS[2], ARGV[2], more)
redis.call('HINCRBY', KEYS[2], 'total', more)
return {'ok', now, more}
`);
