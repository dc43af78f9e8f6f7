import { z } from 'zod';
import { jsonText, parseAnswer, queryText } from './answers.ts';
import { type Command, type CommandContext, type CommandOption, exitCodes, textFlag } from './command.ts';
import { FailedError, UsageError } from './errors.ts';
import { cleanLine, renderTable } from './table.ts';
import { timeText } from './wallet.ts';

/** The commands over /v1/keys. Fields that a newer gateway adds to its answers are ignored. */

const count = z.number().nullable();

const key = z.looseObject({
  id: z.string(),
  name: z.string(),
  prefix: z.string(),
  last4: z.string(),
  scope: z.string(),
  status: z.string(),
  expires_at: count,
  last_used_at: count,
  requests_per_minute: count,
  max_concurrency: count,
  tokens_per_minute: count,
  monthly_token_limit: count,
  models: z.array(z.string()).nullish(),
});
type Key = z.output<typeof key>;

const keyPage = z.looseObject({ data: z.array(key), next_cursor: z.string().nullable() });
const createdKey = z.looseObject({ ...key.shape, secret: z.string() });

const org = (context: CommandContext) => ({ organization_id: textFlag(context, 'org') });

async function readKeys(context: CommandContext, status: string | null): Promise<Key[]> {
  const found: Key[] = [];
  let cursor: string | null = null;
  do {
    const query = queryText({ limit: '500', cursor, status, ...org(context) });
    const page: z.output<typeof keyPage> = parseAnswer(keyPage, await context.api.call('GET', `/v1/keys${query}`));
    found.push(...page.data);
    cursor = page.next_cursor;
  } while (cursor !== null);
  return found;
}

async function list(context: CommandContext): Promise<number> {
  const found = await readKeys(context, textFlag(context, 'status'));
  const rows = found.map((one) => [
    one.id,
    `${one.prefix}…${one.last4}`,
    one.scope,
    one.status === 'active' ? one.status : context.terminal.paint('red', one.status),
    one.last_used_at === null ? 'never' : timeText(one.last_used_at),
    one.expires_at === null ? 'never' : timeText(one.expires_at),
    limitsText(one),
    one.name,
  ]);
  const headings = ['KEY', 'SECRET', 'SCOPE', 'STATUS', 'LAST USED (UTC)', 'EXPIRES (UTC)', 'LIMITS', 'NAME'];
  context.out(context.json ? jsonText({ data: found }) : renderTable(headings, rows));
  return exitCodes.ok;
}

function limitsText(one: Key): string {
  const limits: [number | null, string][] = [
    [one.requests_per_minute, '/min'],
    [one.max_concurrency, ' at once'],
    [one.tokens_per_minute, ' tokens/min'],
    [one.monthly_token_limit, ' tokens/month'],
  ];
  const words = limits.flatMap(([limit, unit]) => (limit === null ? [] : [`${limit}${unit}`]));
  return [...words, ...(one.models ?? [])].join(', ') || 'none';
}

const limitFlags = {
  'requests-per-minute': 'requests_per_minute',
  'max-concurrency': 'max_concurrency',
  'tokens-per-minute': 'tokens_per_minute',
  'monthly-token-limit': 'monthly_token_limit',
} as const;

const toggleFlags = { 'store-requests': 'store_requests', 'cache-responses': 'cache_responses' } as const;

/** What flags say of a key; what they do not say is not sent. @throws UsageError */
function settingsOf(context: CommandContext): Record<string, unknown> {
  const said: Record<string, unknown> = {};
  for (const [flag, field] of Object.entries(limitFlags)) {
    const value = textFlag(context, flag);
    if (value === null) continue;
    if (value !== 'none' && !/^\d{1,15}$/.test(value)) throw new UsageError(`--${flag} must be a number, or none`);
    said[field] = value === 'none' ? null : Number(value);
  }
  for (const [flag, field] of Object.entries(toggleFlags)) {
    const value = textFlag(context, flag);
    if (value !== null) said[field] = value === 'on';
  }
  const models = textFlag(context, 'models');
  if (models !== null) said['models'] = models === 'all' ? null : models.split(',').map((one) => one.trim());
  return said;
}

async function create(context: CommandContext): Promise<number> {
  const given = Object.entries({ scope: 'scope', expiry: 'expiry', project: 'project_id', org: 'organization_id' });
  const body = {
    name: context.words[0],
    ...Object.fromEntries(
      given.flatMap(([flag, field]) => {
        const value = textFlag(context, flag);
        return value === null ? [] : [[field, value]];
      }),
    ),
    ...settingsOf(context),
  };
  const answer = await context.api.call('POST', '/v1/keys', { body });
  const made = parseAnswer(createdKey, answer);
  const until = made.expires_at === null ? '' : `, until ${timeText(made.expires_at)} UTC`;
  const text = `${made.scope} key "${cleanLine(made.name)}" (${made.id})${until}; it is shown this once, so keep it:\n\n  ${made.secret}\n\n`;
  context.out(context.json ? jsonText(answer) : text);
  return exitCodes.ok;
}

/** By its id, or by its name where one active key has it. @throws FailedError */
async function find(context: CommandContext): Promise<Key> {
  const [word = ''] = context.words;
  if (word.startsWith('key_')) {
    return parseAnswer(key, await context.api.call('GET', keyPath(context, word)));
  }
  const named = (await readKeys(context, 'active')).filter(({ name }) => name === word);
  if (named.length > 1) {
    const ids = named.map(({ id }) => id).join(', ');
    throw new FailedError(`${named.length} active keys are named ${JSON.stringify(word)}; say which: ${ids}`);
  }
  const [one] = named;
  if (one !== undefined) return one;
  throw new FailedError(`no active key is named ${JSON.stringify(word)}; "headgate keys ls" lists the keys`);
}

const keyPath = (context: CommandContext, id: string): string =>
  `/v1/keys/${encodeURIComponent(id)}${queryText(org(context))}`;

async function edit(context: CommandContext): Promise<number> {
  const name = textFlag(context, 'name');
  const body = { ...(name !== null && { name }), ...settingsOf(context) };
  if (Object.keys(body).length === 0) throw new UsageError('nothing is to be changed: "headgate keys edit --help"');
  const { id } = await find(context);
  const answer = await context.api.call('PATCH', keyPath(context, id), { body });
  const changed = parseAnswer(key, answer);
  context.out(context.json ? jsonText(answer) : `${id} "${cleanLine(changed.name)}": limits ${limitsText(changed)}\n`);
  return exitCodes.ok;
}

async function revoke(context: CommandContext): Promise<number> {
  const { id, name, last_used_at: used, status } = await find(context);
  if (status === 'revoked') throw new FailedError(`${id} "${cleanLine(name)}" is revoked already`);
  if (context.flags['yes'] !== true && context.terminal.isInteractive) {
    const last = used === null ? 'it was never used' : `last used ${timeText(used)} UTC`;
    const question = `Revoke "${cleanLine(name)}" (${id}; ${last})? Its requests fail at once, for ever. [y/N] `;
    if (!/^y(es)?$/i.test((await context.terminal.ask(question)).trim())) throw new FailedError('nothing was revoked');
  }
  const answer = await context.api.call('DELETE', keyPath(context, id));
  context.out(context.json ? jsonText(answer) : `${id} "${cleanLine(name)}": revoked\n`);
  return exitCodes.ok;
}

const text = { type: 'string' } as const;
const limit = { type: 'string', about: 'a number, or none' } as const;
const toggle = { type: 'string', choices: ['on', 'off'] } as const;
const orgOption = { org: { type: 'string', about: 'another organization, for platform admins' } } as const;

const settings: Readonly<Record<string, CommandOption>> = {
  ...Object.fromEntries(Object.keys(limitFlags).map((flag) => [flag, limit])),
  ...Object.fromEntries(Object.keys(toggleFlags).map((flag) => [flag, toggle])),
  models: { type: 'string', about: 'models that it may use, by commas, or all' },
  ...orgOption,
};

export const keyCommands: readonly Command[] = [
  {
    name: 'keys ls',
    usage: '[--status active|revoked|expired] [--org ID]',
    summary: 'List the keys of the organization: what they may, when they were used, how they are limited.',
    words: { min: 0, max: 0 },
    options: { status: { type: 'string', choices: ['active', 'revoked', 'expired'] }, ...orgOption },
    run: list,
  },
  {
    name: 'keys create',
    usage:
      'NAME [--scope SCOPE] [--expiry never|7d|30d|90d|1y] [--project ID] [--models A,B] [--requests-per-minute N]…',
    summary:
      'Make a key and show its secret this once; limits that are not named are the defaults of the organization.',
    words: { min: 1, max: 1 },
    options: {
      scope: { type: 'string', choices: ['inference', 'management'], about: 'inference if not said' },
      expiry: { type: 'string', choices: ['never', '7d', '30d', '90d', '1y'] },
      project: text,
      ...settings,
    },
    run: create,
  },
  {
    name: 'keys edit',
    usage: 'ID|NAME [--name NAME] [--models A,B|all] [--requests-per-minute N|none]…',
    summary: 'Change name, limits, models and toggles of a key.',
    words: { min: 1, max: 1 },
    options: { name: text, ...settings },
    run: edit,
  },
  {
    name: 'keys revoke',
    usage: 'ID|NAME [--yes]',
    summary: 'End a key for good; on a terminal it asks before.',
    words: { min: 1, max: 1 },
    options: { yes: { type: 'boolean', short: 'y', about: 'without asking' }, ...orgOption },
    run: revoke,
  },
];
