import { age, identity, requestsHeld, script, walletTtlMs } from './scripts.ts';

/**
 * Data of hard budgets in Redis. All budgets of an organization are in one hash, `budgets`, by the names of their
 * slots:
 *
 *   slot       micro-dollars spent, below zero and rounded down; slot:r the pico-dollars that this is too much;
 *              slot:at when they were read from the database. i is the identity of the server at that time: values of
 *              another server are unknown
 *
 * `money` has h:slot, the amount held against the slot. `holds` has request:b, the slots of a request between spaces; a
 * slot whose spending already includes the charge is marked with !. A slot that Redis has dropped is read again.
 */

/** Maximum number of fields. Beyond it, a read clears the hash, and all budgets are read again when they are needed. */
const fieldsMax = 300_000;

/**
 * Changes the amount held against budgets; no other code changes it. `of` is the note of the request, or false. Every
 * script that changes a hold includes this code.
 */
export const holdBudgets = `
local function holdBudgets(of, more)
  if not of or tonumber(more) == 0 then return end
  for slot in string.gmatch(of, '[^%s!]+') do
    if redis.call('HINCRBY', KEYS[3], 'h:' .. slot, more) == 0 then redis.call('HDEL', KEYS[3], 'h:' .. slot) end
  end
end
`;

/** Parts of the admit script for requests that have budgets: see redis-admit-scripts.ts. */
export const budgetParts = {
  /**
   * Checks that the spending is known. Budgets are the sixth field of a request, as "slot micro slot micro", or "-".
   */
  read: `
local spent, ours = {}, redis.call('HGET', KEYS[7], 'i') == me
for index = 17, #ARGV, 7 do
  for slot in string.gmatch(ARGV[index], '(%S+) %S+') do
    if not spent[slot] then
      local known = ours and redis.call('HMGET', KEYS[7], slot, slot .. ':at')
      if not known or not known[1] then return {'budget', now, slot} end
      if ARGV[9] ~= '-' and isOld(known[2], ARGV[9]) then return {'budget', now, slot} end
      spent[slot] = { tonumber(known[1]), tonumber(redis.call('HGET', KEYS[3], 'h:' .. slot) or '0'), 0 }
    end
  end
end
`,
  refuse: `
  for slot, limit in string.gmatch(of, '(%S+) (%S+)') do
    local left = tonumber(limit) + spent[slot][1] - spent[slot][2]
    if needed > 0 and left < needed then
      return 'budget_exceeded ' .. slot .. ' ' .. text(spent[slot][1]) .. ' ' .. text(spent[slot][2])
    end
    free = math.min(free, math.max(0, left))
  end
`,
  take: `
  local slots = {}
  for slot in string.gmatch(of, '(%S+) %S+') do
    slots[#slots + 1] = slot
    spent[slot][2], spent[slot][3] = spent[slot][2] + hold, spent[slot][3] + hold
  end
  if #slots > 0 then
    notes[#notes + 1] = id .. ':b'
    notes[#notes + 1] = table.concat(slots, ' ')
  end
`,
  /** Returns the amounts spent and held of each budget after a grant, in the order of the budgets. */
  said: `
  local said = ''
  for slot in string.gmatch(of, '(%S+) %S+') do said = said .. ' ' .. text(spent[slot][1]) .. ' ' .. text(spent[slot][2]) end
`,
  write: `
for slot, one in pairs(spent) do
  if one[3] > 0 then redis.call('HINCRBY', KEYS[3], 'h:' .. slot, text(one[3])) end
end
`,
};

/**
 * Extends the hold of a request that has budgets. KEYS wallet holds money budgets · ARGV deadline request more least
 * (slot limit)…
 * Returns the amount added, 0 if less than the least is available, and then the first budget that has nothing more, or
 * "-".
 */
export const extendBoundScript = script(`${identity}${holdBudgets}
if redis.call('HEXISTS', KEYS[3], ARGV[2]) == 0 then return {'gone', now} end
local me = identity()
local wallet = redis.call('HMGET', KEYS[1], 'b', 'i')
if not wallet[1] or wallet[2] ~= me then return {'wallet', now} end
local available, why = tonumber(wallet[1]) - tonumber(redis.call('HGET', KEYS[3], 'total') or '0'), '-'
local isEmpty = available <= 0
for index = 5, #ARGV, 2 do
  local slot = ARGV[index]
  local known = redis.call('HMGET', KEYS[4], 'i', slot)
  if known[1] ~= me or not known[2] then return {'budget', now} end
  local left = tonumber(ARGV[index + 1]) + tonumber(known[2]) - tonumber(redis.call('HGET', KEYS[3], 'h:' .. slot) or '0')
  if left <= 0 and why == '-' and not isEmpty then why = slot end
  available = math.min(available, left)
end
if available <= 0 or available < tonumber(ARGV[4]) then return {'ok', now, '0', why} end
local more = ARGV[3]
if available < tonumber(more) then more = text(available) end
redis.call('HINCRBY', KEYS[3], ARGV[2], more)
redis.call('HINCRBY', KEYS[3], 'total', more)
holdBudgets(redis.call('HGET', KEYS[2], ARGV[2] .. ':b'), more)
return {'ok', now, more, '-'}
`);

/**
 * Counts a request against other budgets than before, with all that it holds.
 * KEYS holds money budgets loading · ARGV deadline request isForced (slot limit)…
 * Reply: gone; budget if the spending of a new slot is unknown; refused if a new budget does not have the hold; or ok
 */
export const moveBudgetsScript = script(`${identity}
local id, forced = ARGV[2], ARGV[3] == '1'
local micro = tonumber(redis.call('HGET', KEYS[2], id))
if not micro then return {'gone', now} end
local was, slots, added = {}, {}, {}
for slot, mark in string.gmatch(redis.call('HGET', KEYS[1], id .. ':b') or '', '([^%s!]+)(!?)') do was[slot] = slot .. mark end
for index = 4, #ARGV, 2 do
  local slot = ARGV[index]
  slots[#slots + 1] = was[slot] or slot
  if was[slot] then was[slot] = nil else added[#added + 1] = slot end
  if added[#added] == slot and not forced then
    local known = redis.call('HMGET', KEYS[3], 'i', slot)
    if known[1] ~= identity() or not known[2] then return {'budget', now} end
    local left = tonumber(ARGV[index + 1]) + tonumber(known[2]) - tonumber(redis.call('HGET', KEYS[2], 'h:' .. slot) or '0')
    if micro > 0 and left < micro then return {'refused', now} end
  end
end
local function hold(slot, more)
  if more ~= 0 and redis.call('HINCRBY', KEYS[2], 'h:' .. slot, text(more)) == 0 then
    redis.call('HDEL', KEYS[2], 'h:' .. slot)
  end
end
for slot in pairs(was) do hold(slot, -micro) end
for _, slot in ipairs(added) do hold(slot, micro) end
if #slots == 0 then redis.call('HDEL', KEYS[1], id .. ':b')
else redis.call('HSET', KEYS[1], id .. ':b', table.concat(slots, ' ')) end
redis.call('DEL', KEYS[4])
return {'ok', now}
`);

/**
 * Runs before the database is asked for the spending of a slot. As for a balance, every settlement deletes the token.
 * KEYS wallet holds loading budgets · ARGV deadline token notBefore slot
 * Reply: begin, now, token, requests that count against it…
 */
export const beginBudgetScript = script(`${requestsHeld}${age}
local known = redis.call('HMGET', KEYS[4], 'i', ARGV[4], ARGV[4] .. ':at')
if known[1] == me and known[2] and not isOld(known[3], ARGV[3]) then return {'there', now} end
local reply = {'begin', now, token()}
local all = redis.call('HGETALL', KEYS[2])
for index = 1, #all, 2 do
  local id = string.match(all[index], '^(.+):b$')
  if id and string.find(' ' .. string.gsub(all[index + 1], '!', '') .. ' ', ' ' .. ARGV[4] .. ' ', 1, true) then
    table.insert(reply, id)
  end
end
return reply
`);

/**
 * Stores the spending of a slot.
 * KEYS wallet holds loading budgets · ARGV deadline token slot micro pico (request whose charge it includes)…
 */
export const endBudgetScript = script(`${requestsHeld}
if isOutdated() then return {'again', now} end
local slot = ARGV[3]
for index = 6, #ARGV do
  local of = redis.call('HGET', KEYS[2], ARGV[index] .. ':b')
  if of then
    local marked = {}
    for one in string.gmatch(of, '%S+') do marked[#marked + 1] = one == slot and one .. '!' or one end
    redis.call('HSET', KEYS[2], ARGV[index] .. ':b', table.concat(marked, ' '))
  end
end
if redis.call('HGET', KEYS[4], 'i') ~= me or redis.call('HLEN', KEYS[4]) > ${fieldsMax} then redis.call('DEL', KEYS[4]) end
redis.call('HSET', KEYS[4], 'i', me, slot, ARGV[4], slot .. ':r', ARGV[5], slot .. ':at', text(now))
redis.call('PEXPIRE', KEYS[4], ${walletTtlMs})
return {'ok', now}
`);
