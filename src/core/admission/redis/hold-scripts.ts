import { holdBudgets } from './budget-scripts.ts';
import { registerModelsLua, settleModelsLua } from './model-scripts.ts';
import { knownTtlMs, script, useTtlMs, windows } from './scripts.ts';

/**
 * Settles, shrinks or takes back holds.
 * KEYS wallet holds money leases use slots loading monthLoading budgets models days
 * ARGV deadline (request chargedMicro chargedPico tokens how)…
 *
 * `how` is one of
 *  settle  removes the hold, for the amount charged in the database
 *  replay  the same by another gateway than the request's own
 *  sweep   the same, but changes nothing if there is no such hold
 *  spool   the request is durable and not in the database yet: the coming charge stays held, all else is given back
 *  undo    takes back an admission that was reported to nobody, including its counted request
 *  local:beganMs:limit:slot:limit  as settle, for a request that was admitted instead of Redis, which may have admitted
 *                  it as well: use that Redis does not have is counted, for the key and for the model of the project
 *
 * A charge without a hold means that Redis has lost data: it forgets balance, budgets, month and days, so that the
 * database is asked again. It does the same with a balance that would go below zero, since the database charges no more
 * than there is.
 */
export const settleScript = script(`${windows}${holdBudgets}${settleModelsLua}
local function forget()
  redis.call('DEL', KEYS[1], KEYS[7], KEYS[8], KEYS[9], KEYS[11])
  redis.call('HDEL', KEYS[5], 'mm')
end
local function hold(id, micro, of)
  local more = tonumber(micro) - tonumber(redis.call('HGET', KEYS[3], id) or '0')
  redis.call('HSET', KEYS[3], id, micro)
  redis.call('HINCRBY', KEYS[3], 'total', text(more))
  holdBudgets(of, text(more))
end
local function charge(key, whole, rests, micro, pico)
  local rest = redis.call('HGET', key, rests)
  if not rest then return end
  if micro ~= '0' then redis.call('HINCRBY', key, whole, '-' .. micro) end
  rest = tonumber(rest) - tonumber(pico)
  if rest < 0 then
    rest = rest + 1000000
    redis.call('HINCRBY', key, whole, '-1')
  end
  redis.call('HSET', key, rests, text(rest))
end
local function chargeWallet(micro, pico)
  charge(KEYS[1], 'b', 'r', micro, pico)
  if tonumber(redis.call('HGET', KEYS[1], 'b') or '0') < 0 then redis.call('DEL', KEYS[1]) end
end
local function chargeBudgets(of, micro, pico)
  for slot, mark in string.gmatch(of, '([^%s!]+)(!?)') do
    if mark == '' then charge(KEYS[9], slot, slot .. ':r', micro, pico) end
  end
end
local function correct(s, n, t, reserved, began, limit, tokens, how)
  local same = s == tonumber(began)
  if limit ~= '-' then
    local beyond = tokens - tonumber(reserved)
    if beyond > 0 or same then t = math.max(0, t + beyond) end
    if s == 0 and t > 0 then s = now end
  end
  if how == 'undo' and same and n > 0 then n = n - 1 end
  return s, n, t
end
local function count(note, month, tokens, how)
  local reserved, began, limit = string.match(note, '^%S+ %S+ %S+ (%S+) (%S+) (%S+)$')
  local use = redis.call('HMGET', KEYS[5], 's', 'n', 't', 'm', 'mm')
  local s, n, t = roll(tonumber(use[1] or 0), tonumber(use[2] or 0), tonumber(use[3] or 0), tonumber(limit))
  s, n, t = correct(s, n, t, reserved, began, limit, tokens, how)
  local m = use[4] or '0'
  if month then
    local of, taken = string.match(month, '^(%S+) (%S+)$')
    if of == use[5] then m = text(math.max(0, tonumber(m) + tokens - tonumber(taken))) end
  end
  redis.call('HSET', KEYS[5], 's', text(s), 'n', text(n), 't', text(t), 'm', m)
end
local function countUnknown(began, limit, tokens)
  if now - began >= 60000 then return end
  local use = redis.call('HMGET', KEYS[5], 's', 'n', 't')
  local s, n, t = roll(tonumber(use[1] or 0), tonumber(use[2] or 0), tonumber(use[3] or 0), limit)
  if s == 0 then s = math.min(began, now) end
  redis.call('HSET', KEYS[5], 's', text(s), 'n', text(n + 1), 't', text(t + (limit and tokens or 0)))
end
local function spool(id, note, month, micro, pico, tokens, bound)
  hold(id, text(tonumber(micro) + (pico ~= '0' and 1 or 0)), bound)
  local of, window = string.match(note, '^(%S+ %S+) %S+ %S+ (%S+ %S+)$')
  redis.call('HSET', KEYS[2], id, of .. ' ' .. tokens .. ' ' .. tokens .. ' ' .. window, id .. ':s', '1')
  if month then
    redis.call('HSET', KEYS[2], id .. ':m', string.match(month, '^%S+') .. ' ' .. tokens)
  end
end
local function settle(id, micro, pico, used, how)
  local noted = redis.call('HMGET', KEYS[2], id, id .. ':w', id .. ':m', id .. ':s', id .. ':b', id .. ':l')
  local note, billed, month, spooled, bound, model = noted[1], noted[2], noted[3], noted[4], noted[5], noted[6]
  local began, limit, slot, ofModel = string.match(how, '^local:([^:]+):([^:]+):([^:]+):([^:]+)$')
  if not note then
    if how ~= 'undo' and how ~= 'sweep' and how ~= 'spool' then forget() end
    if began then
      countUnknown(tonumber(began), tonumber(limit), tonumber(used))
      countUnknownOfModel(tonumber(began), slot, tonumber(ofModel), tonumber(used))
    end
    return
  end
  if how == 'spool' and spooled then return end
  count(note, month, tonumber(used), how)
  if model then countModel(id, model, tonumber(used), how, correct) end
  redis.call('ZREM', KEYS[6], id)
  if how == 'spool' then return spool(id, note, month, micro, pico, used, bound) end
  hold(id, '0', bound)
  redis.call('HDEL', KEYS[3], id)
  redis.call('HDEL', KEYS[2], id, id .. ':w', id .. ':m', id .. ':s', id .. ':b', id .. ':l')
  redis.call('ZREM', KEYS[4], id)
  redis.call('DEL', KEYS[7], KEYS[8])
  if not billed then chargeWallet(micro, pico) end
  if bound then chargeBudgets(bound, micro, pico) end
end
for index = 2, #ARGV, 5 do settle(unpack(ARGV, index, index + 4)) end
return {'ok', now}
`);

/**
 * Renews leases, and returns the requests that Redis does not have. KEYS holds leases slots · ARGV deadline leaseMs
 * request…
 */
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
 * Registers a gateway's data for one key with a Redis that lost it, or never had it: its holds, and the number of
 * requests that it admitted instead of Redis and that have ended since. A request counts in the running minute if it
 * began less than a minute ago. A balance or a month that was read from the database after a hold began may include its
 * charge, so it is forgotten, and so are budgets, also if another model serves a request by now; the same if `charged` says that a charge was made that Redis does not
 * have.
 *
 * KEYS wallet holds money leases slots loading monthLoading use told budgets models days
 * ARGV deadline leaseMs message requests tokens beganMs charged limit
 *     (request "key gateway estimate" reserved micro spooled beganMs "slot…" "slot reserved limit")…
 * `message` names the counts of ended requests, which are added once however often they come.
 */
export const registerScript = script(`${windows}${holdBudgets}${registerModelsLua}
local ends, limit = text(now + tonumber(ARGV[2])), ARGV[8]
local use = redis.call('HMGET', KEYS[8], 's', 'n', 't', 'm', 'mm', 'mt')
local s, n, t = roll(tonumber(use[1] or 0), tonumber(use[2] or 0), tonumber(use[3] or 0), tonumber(limit))
local m, month, monthAt = tonumber(use[4] or 0), use[5], use[6] and tonumber(use[6]) or math.huge
local read = redis.call('HGET', KEYS[1], 'at')
local readAt = read and tonumber(read) or math.huge
local added, lost, lostMonth, counted = 0, ARGV[7] == '1', ARGV[7] == '1', false
local lostBudgets = lost
local function count(began, requests, tokens)
  began = math.min(tonumber(began), now)
  if now - began >= 60000 then return false end
  if s == 0 then s = began end
  n, t, counted = n + requests, t + tokens, true
  return true
end
local function add(id, head, reserved, began, bound, model)
  local isRecent = count(began, 1, tonumber(reserved))
  redis.call('HSET', KEYS[2], id, head .. ' ' .. reserved .. ' ' .. (isRecent and text(s) or '0') .. ' ' .. limit)
  if tonumber(began) <= readAt then lost = true end
  if bound ~= '-' then
    redis.call('HSET', KEYS[2], id .. ':b', bound)
    lostBudgets = true
  end
  addOfModel(id, model, math.min(tonumber(began), now))
  if month and tonumber(began) > monthAt then
    local estimate = string.match(head, '(%S+)$')
    redis.call('HSET', KEYS[2], id .. ':m', month .. ' ' .. estimate)
    m, counted = m + tonumber(estimate), true
  else
    lostMonth = true
  end
  added = added + 1
end
local function rebind(id, bound)
  local was = string.gsub(redis.call('HGET', KEYS[2], id .. ':b') or '-', '!', '')
  if was == bound then return end
  local micro = redis.call('HGET', KEYS[3], id) or '0'
  holdBudgets(was ~= '-' and was, text(-tonumber(micro)))
  holdBudgets(bound ~= '-' and bound, micro)
  if bound == '-' then redis.call('HDEL', KEYS[2], id .. ':b') else redis.call('HSET', KEYS[2], id .. ':b', bound) end
  lostBudgets = true
end
local function hold(id, micro, spooled)
  local more = tonumber(micro) - tonumber(redis.call('HGET', KEYS[3], id) or '0')
  if more > 0 then
    redis.call('HINCRBY', KEYS[3], id, text(more))
    redis.call('HINCRBY', KEYS[3], 'total', text(more))
    holdBudgets(redis.call('HGET', KEYS[2], id .. ':b'), text(more))
  end
  redis.call('ZADD', KEYS[4], ends, id)
  if spooled == '1' then
    redis.call('HSET', KEYS[2], id .. ':s', '1')
    redis.call('ZREM', KEYS[5], id)
  else
    redis.call('ZADD', KEYS[5], ends, id)
  end
end
if ARGV[4] ~= '0' and redis.call('GET', KEYS[9]) ~= ARGV[3] then
  count(ARGV[6], tonumber(ARGV[4]), tonumber(ARGV[5]))
  redis.call('SET', KEYS[9], ARGV[3], 'PX', ${knownTtlMs})
end
for index = 9, #ARGV, 8 do
  local id, head, reserved, micro, spooled, began, bound, model = unpack(ARGV, index, index + 7)
  if redis.call('HEXISTS', KEYS[2], id) == 0 then add(id, head, reserved, began, bound, model) else rebind(id, bound) end
  hold(id, micro, spooled)
end
if counted then
  redis.call('HSET', KEYS[8], 's', text(s), 'n', text(n), 't', text(t), 'm', text(m))
  redis.call('PEXPIRE', KEYS[8], ${useTtlMs})
end
if #ARGV > 8 then redis.call('PEXPIRE', KEYS[5], ${useTtlMs}) end
if added > 0 then redis.call('DEL', KEYS[6], KEYS[7]) end
if lost then redis.call('DEL', KEYS[1], KEYS[6]) end
if lostBudgets then redis.call('DEL', KEYS[10], KEYS[6]) end
if lostMonth then
  redis.call('HDEL', KEYS[8], 'mm')
  redis.call('DEL', KEYS[7])
end
return {'ok', now, added}
`);

/** Returns the holds whose lease expired. KEYS leases holds · ARGV deadline most · Reply: (request note spooled)… */
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

/** Returns all holds. KEYS holds money · ARGV deadline - · Reply: (request note micro spooled)… */
export const heldScript = script(`
local reply = {'ok', now}
local all = redis.call('HGETALL', KEYS[1])
for index = 1, #all, 2 do
  local id = all[index]
  if not string.find(id, ':', 1, true) then
    table.insert(reply, id)
    table.insert(reply, all[index + 1])
    table.insert(reply, redis.call('HGET', KEYS[2], id) or '0')
    table.insert(reply, redis.call('HGET', KEYS[1], id .. ':s') or '0')
  end
end
return reply
`);
