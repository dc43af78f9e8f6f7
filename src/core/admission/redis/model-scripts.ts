import { identity, knownTtlMs, requestsHeld, script, useTtlMs, windows } from './scripts.ts';

/**
 * Data of the limits that projects have for models. All limits of an organization are in two hashes, by the names of
 * their slots:
 *
 *   models   hash   slot → "window requests tokens", as `use` has them for a key
 *   days     hash   slot → "day requests identity at": requests of the UTC day that begins at `day`, valid for that
 *                   server, and the time when they were read from the database
 *
 * A request that counts against a limit has request:l → "slot reserved window limit day" among the holds, where `limit`
 * is the token limit or "-". A limit itself comes as "slot requests tokens day", each a number or "-"; "-" for no
 * limit.
 */

const dayMs = 86_400_000;

const windowLua = `
local function windowText(s, n, t) return text(s) .. ' ' .. text(n) .. ' ' .. text(t) end
local function windowOf(models, slot, limit)
  local s, n, t = string.match(redis.call('HGET', models, slot) or '0 0 0', '^(%S+) (%S+) (%S+)$')
  return roll(tonumber(s), tonumber(n), tonumber(t), limit)
end
`;

/** Reads and writes a slot. `d` is nil if the day's requests must be read from the database. */
const modelsLua = `${windowLua}
local today = now - now % ${dayMs}
local function limitOf(words)
  local slot, requests, tokens, day = string.match(words, '^(%S+) (%S+) (%S+) (%S+)$')
  return slot, tonumber(requests), tonumber(tokens), tonumber(day)
end
local function dayOf(days, slot, me, notBefore)
  local of, d, by, at = string.match(redis.call('HGET', days, slot) or '', '^(%S+) (%S+) (%S+) (%S+)$')
  if by ~= me or tonumber(of) > today or (notBefore and tonumber(at) < notBefore) then return nil end
  return tonumber(of) < today and 0 or tonumber(d), at
end
local function readModel(models, days, slot, limit, me, notBefore)
  local s, n, t = windowOf(models, slot, limit)
  local d, at = dayOf(days, slot, me, notBefore)
  return { s = s, n = n, t = t, d = d, at = at }
end
local function writeModel(models, days, slot, one, me)
  redis.call('HSET', models, slot, windowText(one.s, one.n, one.t))
  redis.call('PEXPIRE', models, ${useTtlMs})
  if not one.d then return redis.call('HDEL', days, slot) end
  redis.call('HSET', days, slot, text(today) .. ' ' .. text(one.d) .. ' ' .. me .. ' ' .. one.at)
  redis.call('PEXPIRE', days, ${knownTtlMs})
end
local function modelRefuses(one, requests, tokens, day, estimate)
  return (requests and one.n >= requests) or (tokens and one.t + math.min(estimate, tokens) > tokens)
    or (day and one.d >= day)
end
local function takeOfModel(one, slot, tokens, estimate)
  local kept = tokens and math.min(estimate, tokens) or 0
  if one.n == 0 then one.s = now end
  one.n, one.t, one.d = one.n + 1, one.t + kept, one.d and one.d + 1
  return slot .. ' ' .. text(kept) .. ' ' .. text(one.s) .. ' ' .. (tokens and text(tokens) or '-') .. ' ' .. text(today)
end
`;

/**
 * Parts of the admit script for requests with project limits: see redis-admit-scripts.ts. KEYS[8] models, KEYS[9] days.
 */
export const modelParts = {
  read: `${modelsLua}
local models = {}
for index = 18, #ARGV, 7 do
  local slot, _, tokens = limitOf(ARGV[index])
  if slot then
    models[slot] = models[slot] or readModel(KEYS[8], KEYS[9], slot, tokens, me, tonumber(ARGV[9]))
  end
end
local function metOf(by)
  local one = models[limitOf(by)]
  if not one then return '' end
  return ' ' .. windowText(one.s, one.n, one.t) .. ' ' .. (one.d and text(one.d) or '-')
end
`,
  /** Returns "day" for this request only: requests of its key for other models need not wait for that day. */
  know: `
  local slot, requests, tokens, day = limitOf(by)
  if day and not models[slot].d then return 'day' end
`,
  refuse: `
  if slot and modelRefuses(models[slot], requests, tokens, day, estimate) then
    return 'project_limit_exceeded ' .. used() .. metOf(by)
  end
`,
  take: `
  local limited, _, tokens = limitOf(by)
  if limited then
    notes[#notes + 1] = id .. ':l'
    notes[#notes + 1] = takeOfModel(models[limited], limited, tokens, estimate)
    models[limited].isTaken = true
  end
`,
  write: `
for slot, one in pairs(models) do
  if one.isTaken then writeModel(KEYS[8], KEYS[9], slot, one, me) end
end
`,
};

/** Part of the settle script: replaces reserved tokens of a model with used ones. KEYS[10] models, KEYS[11] days. */
export const settleModelsLua = `${windowLua}
local function countModel(id, note, tokens, how, correct)
  local slot, reserved, began, limit, day = string.match(note, '^(%S+) (%S+) (%S+) (%S+) (%S+)$')
  local s, n, t = windowOf(KEYS[10], slot, tonumber(limit))
  redis.call('HSET', KEYS[10], slot, windowText(correct(s, n, t, reserved, began, limit, tokens, how)))
  redis.call('PEXPIRE', KEYS[10], ${useTtlMs})
  if how == 'spool' then
    redis.call('HSET', KEYS[2], id .. ':l', slot .. ' ' .. text(tokens) .. ' ' .. began .. ' ' .. limit .. ' ' .. day)
  end
  if how == 'undo' then redis.call('DEL', KEYS[11]) end
end
local function countUnknownOfModel(began, slot, limit, tokens)
  redis.call('DEL', KEYS[11])
  if slot == '-' or now - began >= 60000 then return end
  local s, n, t = windowOf(KEYS[10], slot, limit)
  if s == 0 then s = math.min(began, now) end
  redis.call('HSET', KEYS[10], slot, windowText(s, n + 1, t + (limit and tokens or 0)))
  redis.call('PEXPIRE', KEYS[10], ${useTtlMs})
end
`;

/** Part of the script that registers holds. KEYS[11] models, KEYS[12] days. @see registerScript */
export const registerModelsLua = `${windowLua}
local function addOfModel(id, words, began)
  local slot, reserved, limit = string.match(words, '^(%S+) (%S+) (%S+)$')
  if not slot then return end
  redis.call('DEL', KEYS[12])
  local day = began - began % ${dayMs}
  local window = 0
  if now - began < 60000 then
    local s, n, t = windowOf(KEYS[11], slot, tonumber(limit))
    if s == 0 then s = began end
    window = s
    redis.call('HSET', KEYS[11], slot, windowText(s, n + 1, t + tonumber(reserved)))
    redis.call('PEXPIRE', KEYS[11], ${useTtlMs})
  end
  redis.call('HSET', KEYS[2], id .. ':l', slot .. ' ' .. reserved .. ' ' .. text(window) .. ' ' .. limit .. ' ' .. text(day))
end
`;

/**
 * Counts the requests that a gateway admitted instead of Redis against a project's limits, and those that have ended
 * since; once, however often they come. The day's requests are read from the database again, also by current readers.
 * KEYS models days told loading · ARGV deadline message slot limit requests tokens beganMs
 */
export const registerModelScript = script(`${windows}${windowLua}
redis.call('DEL', KEYS[2], KEYS[4])
if redis.call('GET', KEYS[3]) == ARGV[2] then return {'ok', now} end
redis.call('SET', KEYS[3], ARGV[2], 'PX', ${knownTtlMs})
local slot, limit, began = ARGV[3], tonumber(ARGV[4]), math.min(tonumber(ARGV[7]), now)
if ARGV[5] == '0' or now - began >= 60000 then return {'ok', now} end
local s, n, t = windowOf(KEYS[1], slot, limit)
if s == 0 then s = began end
redis.call('HSET', KEYS[1], slot, windowText(s, n + tonumber(ARGV[5]), t + tonumber(ARGV[6])))
redis.call('PEXPIRE', KEYS[1], ${useTtlMs})
return {'ok', now}
`);

/**
 * Counts a request against other limits than before. KEYS holds money models days
 * ARGV deadline request limit estimate isForced · Reply: gone, day, refused or ok
 */
export const moveScript = script(`${windows}${identity}${modelsLua}
local id, by, estimate, forced = ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5] == '1'
if redis.call('HEXISTS', KEYS[2], id) == 0 then return {'gone', now} end
local me = identity()
local slot, requests, tokens, day = limitOf(by)
local was, reserved, began, limit, of = string.match(redis.call('HGET', KEYS[1], id .. ':l') or '', '^(%S+) (%S+) (%S+) (%S+) (%S+)$')
if was and was == slot then return {'ok', now, 'there'} end
local one = slot and readModel(KEYS[3], KEYS[4], slot, tokens, me)
if one and not forced then
  if day and not one.d then return {'day', now} end
  if modelRefuses(one, requests, tokens, day, estimate) then return {'refused', now} end
end
if was then
  local before = readModel(KEYS[3], KEYS[4], was, tonumber(limit), me)
  if before.s == tonumber(began) then
    before.n, before.t = math.max(0, before.n - 1), math.max(0, before.t - tonumber(reserved))
  end
  if before.d and tonumber(of) == today then before.d = math.max(0, before.d - 1) end
  writeModel(KEYS[3], KEYS[4], was, before, me)
end
redis.call('HDEL', KEYS[1], id .. ':l')
if one then
  redis.call('HSET', KEYS[1], id .. ':l', takeOfModel(one, slot, tokens, estimate))
  writeModel(KEYS[3], KEYS[4], slot, one, me)
end
return {'ok', now}
`);

/**
 * Runs before the database is asked for the requests of a day. As for a balance, every settlement deletes the token.
 * KEYS wallet holds loading days · ARGV deadline token slot notBefore
 * Reply: begin, now, token, the current day, requests of that day that count against the slot…
 */
export const beginDayScript = script(`${windows}${requestsHeld}${modelsLua}
if dayOf(KEYS[4], ARGV[3], me, tonumber(ARGV[4])) then return {'there', now} end
local reply = {'begin', now, token(), text(today)}
local all = redis.call('HGETALL', KEYS[2])
for index = 1, #all, 2 do
  local id = string.match(all[index], '^(.+):l$')
  local slot, day = string.match(all[index + 1], '^(%S+) %S+ %S+ %S+ (%S+)$')
  if id and slot == ARGV[3] and tonumber(day) == today then reply[#reply + 1] = id end
end
return reply
`);

/**
 * Stores the requests of a day.
 * KEYS wallet holds loading days · ARGV deadline token slot day requests (request that they include)…
 */
export const endDayScript = script(`${windows}${requestsHeld}${modelsLua}
if isOutdated() or tonumber(ARGV[4]) ~= today then return {'again', now} end
local counted, sum = {}, tonumber(ARGV[5])
for index = 6, #ARGV do counted[ARGV[index]] = true end
local all = redis.call('HGETALL', KEYS[2])
for index = 1, #all, 2 do
  local id = string.match(all[index], '^(.+):l$')
  local slot, day = string.match(all[index + 1], '^(%S+) %S+ %S+ %S+ (%S+)$')
  if id and not counted[id] and slot == ARGV[3] and tonumber(day) == today then sum = sum + 1 end
end
redis.call('HSET', KEYS[4], ARGV[3], text(today) .. ' ' .. text(sum) .. ' ' .. me .. ' ' .. text(now))
redis.call('PEXPIRE', KEYS[4], ${knownTtlMs})
return {'ok', now}
`);
