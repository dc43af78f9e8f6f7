import { createHash } from 'node:crypto';
import type { Notes } from './draft.ts';
import { noteKeys, type KeyTable } from './keys.ts';
import { keyColumns, otherTables, teamColumns, tierColumns } from './litellm-columns.ts';
import type { LitellmData, LitellmKey, LitellmTeam, LitellmTier } from '#core/litellm/litellm.ts';
import { type BudgetBody, budgetsOf, limitOf, NotImported, printable, timeOf } from './litellm-limits.ts';

/** Converts LiteLLM's teams and virtual keys to bodies of `/v1/imports`. */

export interface KeyBody {
  readonly secret_sha256: string;
  readonly prefix: string;
  readonly last4: string;
  readonly name: string;
  readonly expires_at: number | null;
  readonly requests_per_minute: number | null;
  readonly tokens_per_minute: number | null;
  readonly max_concurrency: number | null;
  readonly models: readonly string[] | null;
  readonly budgets: readonly BudgetBody[];
}

/** A project with all its keys. */
export interface GroupBody {
  readonly project: {
    readonly imported_from: string;
    readonly name: string;
    readonly budgets: readonly BudgetBody[];
  };
  readonly keys: readonly KeyBody[];
}

/** Team of the keys with which LiteLLM's dashboard calls LiteLLM itself. */
const dashboardTeam = 'litellm-dashboard';
const modelsMax = 200;
/** Maximum characters of a model's name, as the API accepts. */
const modelNameMax = 512;
/** Project of the keys without a team. */
const aloneName = 'LiteLLM keys without a team';

/** @param nowMs milliseconds since the Unix epoch */
export function convertLitellm({ keys, teams, tiers, counts }: LitellmData, nowMs: number, notes: Notes): GroupBody[] {
  const keysOf = Map.groupBy(keys, ({ team_id: team }) => team);
  const dashboard = keysOf.get(dashboardTeam)?.length ?? 0;
  if (dashboard > 0) notes.add(null, `dashboard sessions (${dashboard}): not imported`);
  for (const [table, [what, reason]] of Object.entries(otherTables)) {
    const rows = counts[table as keyof typeof otherTables] ?? 0;
    if (rows > 0) notes.add(null, `${what} (${rows}): not imported; ${reason}`);
  }
  const converter = { tiers: new Map(tiers.map((tier) => [tier.budget_id, tier])), nowMs, notes };
  const names = new Set([aloneName.toLowerCase()]);
  const known = teams.filter(({ team_id: id }) => id !== dashboardTeam);
  const groups = known.flatMap((team) => groupOf(team, keysOf.get(team.team_id) ?? [], converter, names));
  for (const [id, own] of keysOf) {
    if (id === null || id === dashboardTeam || known.some((team) => team.team_id === id)) continue;
    for (const key of own) notes.add(subjectOf(key), 'not imported: its team does not exist');
  }
  const alone = keysOf.get(null) ?? [];
  if (alone.length === 0) return groups;
  const project = { imported_from: 'litellm', name: aloneName, budgets: [] };
  return [...groups, { project, keys: keysWith(alone, null, converter) }];
}

interface Converter {
  readonly tiers: ReadonlyMap<string, LitellmTier>;
  readonly nowMs: number;
  readonly notes: Notes;
}

function groupOf(
  team: LitellmTeam,
  keys: readonly LitellmKey[],
  converter: Converter,
  names: Set<string>,
): readonly GroupBody[] {
  const { notes } = converter;
  const id = printable(team.team_id);
  const alias = printable(team.team_alias ?? '');
  const subject = `team ${alias === '' ? id : alias}`;
  const add = (text: string): void => notes.add(subject, text);
  try {
    if (team.blocked === true) throw new NotImported('it is blocked; unblock it in LiteLLM and import again');
    const budgets = budgetsOf(team, team.spend, converter.nowMs, add);
    noteSet(team, teamColumns, add);
    const wanted = cut(alias === '' ? `Team ${id}` : alias, 100);
    // LiteLLM accepts the same alias for several teams.
    const name = names.has(wanted.toLowerCase()) ? `${cut(wanted, 60)} (${cut(id, 36)})` : wanted;
    names.add(name.toLowerCase());
    return [
      { project: { imported_from: sourceOf(team.team_id), name, budgets }, keys: keysWith(keys, team, converter) },
    ];
  } catch (error) {
    if (!(error instanceof NotImported)) throw error;
    add(`not imported, with its keys (${keys.length}): ${error.message}`);
    return [];
  }
}

function keysWith(keys: readonly LitellmKey[], team: LitellmTeam | null, converter: Converter): KeyBody[] {
  return keys.flatMap((key) => {
    const add = (text: string): void => converter.notes.add(subjectOf(key), text);
    try {
      return [bodyOf(key, team, converter, add)];
    } catch (error) {
      if (!(error instanceof NotImported)) throw error;
      add(`not imported: ${error.message}`);
      return [];
    }
  });
}

function bodyOf(
  key: LitellmKey,
  team: LitellmTeam | null,
  { tiers, nowMs }: Converter,
  add: (text: string) => void,
): KeyBody {
  const expiresMs = requireWorking(key, nowMs);
  requireInference(key, add);
  const tier = tiers.get(key.budget_id ?? '') ?? null;
  const { money, rpm, tpm } = boundsOf(key, tier);
  const body = {
    secret_sha256: key.token,
    prefix: 'sk-',
    last4: /^sk-\.\.\.([!-~]{4})$/.exec(key.key_name ?? '')?.[1] ?? '',
    name: cut(nameOf(key), 200),
    expires_at: expiresMs === null ? null : Math.floor(expiresMs / 1000),
    requests_per_minute: limitOf(rpm, 'rpm_limit'),
    tokens_per_minute: limitOf(tpm, 'tpm_limit'),
    max_concurrency: limitOf(key.max_parallel_requests, 'max_parallel_requests'),
    models: modelsOf(key, team, add),
    budgets: budgetsOf(money, key.spend, nowMs, add),
  };
  noteSet(key, keyColumns, add);
  if (tier !== null) noteSet(tier, tierColumns, (text) => add(`budget ${printable(tier.budget_id)}: ${text}`));
  return body;
}

/** Returns budget and limits of a key: as in LiteLLM, a value of the key overrides the value of its tier. */
function boundsOf(key: LitellmKey, tier: LitellmTier | null) {
  return {
    money: key.max_budget === null && tier !== null ? tier : key,
    rpm: key.rpm_limit ?? tier?.rpm_limit ?? null,
    tpm: key.tpm_limit ?? tier?.tpm_limit ?? null,
  };
}

/** @returns when the key expires, null for never @throws NotImported for a key that does not work in LiteLLM either */
function requireWorking(key: LitellmKey, nowMs: number): number | null {
  if (!/^[0-9a-f]{64}$/.test(key.token)) throw new NotImported('its token is not a SHA-256');
  if (key.blocked === true) throw new NotImported('it is blocked; unblock it in LiteLLM and import again');
  const expiresMs = timeOf(key.expires, 'expires');
  if (expiresMs !== null && expiresMs <= nowMs) throw new NotImported('it has expired');
  return expiresMs;
}

/** @throws NotImported for a key that may only call routes which are not of models */
function requireInference({ allowed_routes: routes }: LitellmKey, add: (text: string) => void): void {
  if (routes === null || routes.length === 0 || routes.includes('llm_api_routes')) return;
  const isForeign = (route: string): boolean => ['management_routes', 'info_routes'].includes(route);
  if (routes.every(isForeign)) throw new NotImported('it may not call models');
  add('allowed_routes: not imported; the key may call all routes of models');
}

/** Returns the models that both key and team allow; null is all. */
function modelsOf(key: LitellmKey, team: LitellmTeam | null, add: (text: string) => void): readonly string[] | null {
  const ofTeam = listOf(team?.models ?? null);
  const own = key.models?.includes('all-team-models') === true ? null : listOf(key.models);
  if (own === null || ofTeam === null) return bounded(own ?? ofTeam, add);
  const both = own.filter((name) => ofTeam.includes(name));
  const others = own.filter((name) => !ofTeam.includes(name));
  if (both.length === 0) throw new NotImported('its team allows none of its models');
  if (others.length > 0) add(`models that its team does not allow: not imported: ${others.map(printable).join(', ')}`);
  return bounded(both, add);
}

function listOf(models: readonly string[] | null): readonly string[] | null {
  return models === null || models.length === 0 || models.includes('all-proxy-models') ? null : models;
}

/** Leaves out names that no model has here. @throws NotImported */
function bounded(models: readonly string[] | null, add: (text: string) => void): readonly string[] | null {
  if (models === null) return null;
  const [names, others] = [models.filter(isName), models.filter((name) => !isName(name))];
  if (names.length > modelsMax) throw new NotImported(`it has ${names.length} models, and ${modelsMax} is the most`);
  if (names.length === 0) throw new NotImported('none of its models can exist here');
  const shown = others.map((name) => JSON.stringify(cut(printable(name), 50)));
  if (others.length > 0) add(`models that cannot exist here: not imported: ${shown.join(', ')}`);
  return names;
}

const isName = (name: string): boolean => name.trim() !== '' && name.length <= modelNameMax && !/\p{Cc}/u.test(name);

/** Notes the columns that have a value and are not carried over. */
function noteSet(row: object, table: KeyTable, add: (text: string) => void): void {
  noteKeys(Object.fromEntries(Object.entries(row).filter(([, value]) => isSet(value))), table, add);
}

function isSet(value: unknown): boolean {
  if (typeof value === 'object' && value !== null) return Object.keys(value).length > 0;
  return value !== null && value !== undefined && value !== false && value !== 0 && value !== '';
}

/** Shortens a text, and leaves out a surrogate whose other half was cut off. */
const cut = (text: string, length: number): string =>
  text
    .slice(0, length)
    .replace(/[\uD800-\uDBFF]$/, '')
    .trim();

function nameOf({ key_alias: alias, token }: LitellmKey): string {
  const name = printable(alias ?? '');
  return name === '' ? `LiteLLM key ${token.slice(0, 8)}` : name;
}

const subjectOf = (key: LitellmKey): string => `key ${nameOf(key)}`;

/** Returns the name by which a second import finds the project of a team. */
function sourceOf(teamId: string): string {
  const isPlain = /^[!-~]{1,200}$/.test(teamId);
  return `litellm team ${isPlain ? teamId : `sha256:${createHash('sha256').update(teamId).digest('hex')}`}`;
}
