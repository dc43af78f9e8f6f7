import {
  cleanLine,
  type Command,
  type CommandContext,
  type CommandOption,
  confirm,
  exitCodes,
  FailedError,
  jsonText,
  minuteText,
  parseAnswer,
  queryText,
  type Read,
  readCursorList,
  renderTable,
  durationFlag,
  textFlag,
  timeText,
  UsageError,
  yamlText,
  yesOption,
} from '#edge/cli/shell/shell.ts';

/** The commands over /v1/keys. Fields that a newer gateway adds to its answers are ignored. */

const key = async () => (await import('#edge/contract/keys.ts')).keySchema;
type Key = Read<typeof key>;
type Limits = Pick<
  Key,
  'requests_per_minute' | 'max_concurrency' | 'tokens_per_minute' | 'monthly_token_limit' | 'models'
>;

const createdKey = async () => (await import('#edge/contract/keys.ts')).createdKeySchema;

const ownKey = async () => (await import('#edge/contract/keys.ts')).ownKeySchema;

const org = (context: CommandContext) => ({ organization_id: textFlag(context, 'org') });

function readKeys(context: CommandContext, status: string | null): Promise<readonly Key[]> {
  const query = { status, service_account_id: textFlag(context, 'service-account'), ...org(context) };
  return readCursorList(context, { path: '/v1/keys', item: key, query, limit: Infinity, parameter: 'cursor' });
}

async function list(context: CommandContext): Promise<number> {
  const found = await readKeys(context, textFlag(context, 'status'));
  const rows = found.map((one) => [
    one.id,
    `${one.prefix}…${one.last4}`,
    one.scope,
    one.status === 'active' ? one.status : context.terminal.paint('red', one.status),
    one.last_used_at === null ? 'never' : minuteText(one.last_used_at),
    one.expires_at === null ? 'never' : minuteText(one.expires_at),
    boundsText(one),
    one.name,
  ]);
  const headings = ['KEY', 'SECRET', 'SCOPE', 'STATUS', 'LAST USED (UTC)', 'EXPIRES (UTC)', 'LIMITS', 'NAME'];
  const none = 'no keys found; create one with "headgate keys create NAME"\n';
  const leaveOut = ['SECRET', 'EXPIRES (UTC)', 'LIMITS', 'SCOPE', 'STATUS', 'LAST USED (UTC)'];
  const table = found.length === 0 ? none : renderTable(headings, rows, context.terminal.columns, leaveOut);
  context.out(context.json ? jsonText({ data: found }) : table);
  return exitCodes.ok;
}

/** Formats limits as `60/min, 4 at once, chat`, or `none`. */
export function limitsText(one: Limits): string {
  const limits: [number | null, string][] = [
    [one.requests_per_minute, '/min'],
    [one.max_concurrency, ' at once'],
    [one.tokens_per_minute, ' tokens/min'],
    [one.monthly_token_limit, ' tokens/month'],
  ];
  const words = limits.flatMap(([limit, unit]) => (limit === null ? [] : [`${limit}${unit}`]));
  return [...words, ...(one.models ?? [])].join(', ') || 'none';
}

/** Formats limits, and the settings that differ from those of most keys. */
function boundsText(one: Key): string {
  const { confined, unserved_tools: tools } = one;
  const settings = [
    limitsText(one),
    ...(confined === null ? [] : [confined ? 'confined' : 'not confined']),
    ...(tools === null ? [] : [`unserved tools: ${tools}`]),
    ...Object.entries(toggleFlags).flatMap(([flag, field]) => (one[field] ? [flag] : [])),
  ];
  return settings.join('; ');
}

/** API fields by flag. */
const limitFlags = {
  'requests-per-minute': 'requests_per_minute',
  'max-concurrency': 'max_concurrency',
  'tokens-per-minute': 'tokens_per_minute',
  'monthly-token-limit': 'monthly_token_limit',
} as const;

const toggleFlags = {
  'store-requests': 'store_requests',
  'cache-responses': 'cache_responses',
  'end-user-from-header': 'end_user_from_header',
} as const;

/** Returns the settings that flags name; other settings are not sent. @throws UsageError */
function settingsOf(context: CommandContext): Record<string, unknown> {
  const said: Record<string, unknown> = limitsOf(context);
  for (const [flag, field] of Object.entries(toggleFlags)) {
    const value = textFlag(context, flag);
    if (value !== null) said[field] = value === 'on';
  }
  const tools = textFlag(context, 'unserved-tools');
  if (tools !== null) said['unserved_tools'] = tools === 'model' ? null : tools;
  const confined = textFlag(context, 'confined');
  if (confined !== null) said['confined'] = confined === 'auto' ? null : confined === 'on';
  const models = modelsOf(context);
  return models === undefined ? said : { ...said, models };
}

/** Returns the limits that flags name, by their API fields. @throws UsageError */
export function limitsOf(context: CommandContext): Record<string, number | null> {
  const said: Record<string, number | null> = {};
  for (const [flag, field] of Object.entries(limitFlags)) {
    const value = numberOrNone(context, flag);
    if (value !== undefined) said[field] = value;
  }
  return said;
}

/** Returns undefined if the flag is absent, null for `none`. @throws UsageError */
export function numberOrNone(context: CommandContext, flag: string): number | null | undefined {
  const value = textFlag(context, flag);
  if (value === null) return undefined;
  if (value !== 'none' && !/^\d{1,15}$/.test(value)) throw new UsageError(`--${flag} must be a number, or none`);
  return value === 'none' ? null : Number(value);
}

/** Returns undefined if the flag is absent, null for all models. */
export function modelsOf(context: CommandContext): readonly string[] | null | undefined {
  const models = textFlag(context, 'models');
  if (models === null) return undefined;
  return models === 'all' ? null : models.split(',').map((one) => one.trim());
}

async function create(context: CommandContext): Promise<number> {
  const given = Object.entries({
    scope: 'scope',
    expiry: 'expiry',
    project: 'project_id',
    'service-account': 'service_account_id',
    org: 'organization_id',
  });
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
  const made = await parseAnswer(createdKey, answer);
  const until = made.expires_at === null ? '' : `, valid until ${timeText(made.expires_at)} UTC`;
  const text = `${made.scope} key "${cleanLine(made.name)}" (${made.id})${until}; it is shown only once, so store it now:\n\n  ${made.secret}\n\n`;
  context.out(context.json ? jsonText(answer) : text);
  return exitCodes.ok;
}

/** Finds a key by its id, or by its name if exactly one active key has it. @throws FailedError */
async function find(context: CommandContext): Promise<Key> {
  const [word = ''] = context.words;
  if (word.startsWith('key_')) {
    return parseAnswer(key, await context.api.call('GET', keyPath(context, word)));
  }
  return namedOne(word, await readKeys(context, 'active'), 'active key');
}

/** @throws FailedError if no key has the name, or several have */
function namedOne(name: string, keys: readonly Key[], what: string): Key {
  const [first, ...others] = keys.filter((one) => one.name === name);
  if (first === undefined) {
    throw new FailedError(`no ${what} is named ${JSON.stringify(name)}; "headgate keys ls" lists the keys`);
  }
  if (others.length === 0) return first;
  const ids = [first, ...others].map(({ id }) => id).join(', ');
  throw new FailedError(`${others.length + 1} ${what}s are named ${JSON.stringify(name)}; use an id: ${ids}`);
}

/**
 * Returns the id of a key, which may have ended: its past usage can still be listed. Among several keys with the name,
 * the active key is meant.
 * @throws FailedError
 */
export async function findKeyId(context: CommandContext, text: string): Promise<string> {
  if (text.startsWith('key_')) return text;
  const keys = await readKeys(context, null);
  const active = keys.filter(({ name, status }) => name === text && status === 'active');
  return namedOne(text, active.length > 0 ? active : keys, 'key').id;
}

const keyPath = (context: CommandContext, id: string): string =>
  `/v1/keys/${encodeURIComponent(id)}${queryText(org(context))}`;

async function edit(context: CommandContext): Promise<number> {
  const name = textFlag(context, 'name');
  const body = { ...(name !== null && { name }), ...settingsOf(context) };
  if (Object.keys(body).length === 0)
    throw new UsageError('nothing to change; "headgate keys edit --help" lists the options');
  const { id } = await find(context);
  const answer = await context.api.call('PATCH', keyPath(context, id), { body });
  const changed = await parseAnswer(key, answer);
  context.out(context.json ? jsonText(answer) : `${id} "${cleanLine(changed.name)}": limits ${boundsText(changed)}\n`);
  return exitCodes.ok;
}

async function revoke(context: CommandContext): Promise<number> {
  const { id, name, last_used_at: used, status } = await find(context);
  if (status === 'revoked') throw new FailedError(`${id} "${cleanLine(name)}" is already revoked`);
  await confirm(context, {
    question: `Revoke the key "${name}" (${id}; ${used === null ? 'never used' : `last used ${timeText(used)} UTC`})?`,
    consequence: 'Its requests fail immediately and permanently.',
    done: 'revoked',
  });
  const answer = await context.api.call('DELETE', keyPath(context, id));
  context.out(context.json ? jsonText(answer) : `${id} "${cleanLine(name)}": revoked\n`);
  return exitCodes.ok;
}

async function rotate(context: CommandContext): Promise<number> {
  const seconds = durationFlag(context, 'grace');
  const { id, name, prefix, last4 } = await find(context);
  const body = seconds === null ? {} : { grace_seconds: seconds };
  const answer = await context.api.call('POST', `/v1/keys/${encodeURIComponent(id)}/rotate${queryText(org(context))}`, {
    body,
  });
  const { secret, former_secrets_end_at: end } = await parseAnswer(createdKey, answer);
  const until = end === null ? 'has ended' : `works until ${timeText(end)} UTC`;
  const former = `the former secret ${prefix}…${last4} ${until}`;
  const text = `${id} "${cleanLine(name)}" has a new secret; ${former}. The new secret is shown only once, so store it now:\n\n  ${secret}\n\n`;
  context.out(context.json ? jsonText(answer) : text);
  return exitCodes.ok;
}

const toggle = (what: string): CommandOption => ({ type: 'string', choices: ['on', 'off'], about: what });
const limit = (what: string): CommandOption => ({ type: 'string', about: `${what}: a number, or none for no limit` });

/** Options for the limits of new keys. */
export const limitOptions: Readonly<Record<keyof typeof limitFlags, CommandOption>> = {
  'requests-per-minute': limit('requests per minute'),
  'max-concurrency': limit('concurrent requests'),
  'tokens-per-minute': limit('tokens per minute'),
  'monthly-token-limit': limit('tokens per month (UTC)'),
};
const orgOption = { org: { type: 'string', about: 'another organization, for platform administrators' } } as const;

const settings: Readonly<Record<string, CommandOption>> = {
  ...limitOptions,
  'store-requests': toggle('store requests and answers'),
  'cache-responses': toggle('answer repeated requests from the cache'),
  'unserved-tools': {
    type: 'string',
    choices: ['drop', 'reject', 'model'],
    about: 'tools that a model does not serve, such as web search; model: as its engine file says; default: model',
  },
  'end-user-from-header': toggle('read the end user from the header that HEADGATE_END_USER_HEADER names'),
  models: { type: 'string', about: 'allowed models, separated by commas, or all' },
  confined: {
    type: 'string',
    choices: ['on', 'off', 'auto'],
    about:
      'on: the key works only in its own project, and manages nothing; auto: it works in other projects, too, unless its own has a hard budget; off: it works in all projects; default: auto',
  },
  ...orgOption,
};

async function showOwn({ api, json, out }: CommandContext): Promise<number> {
  const answer = await api.call('GET', '/v1/key');
  const { data } = await parseAnswer(ownKey, answer);
  out(json ? jsonText(answer) : yamlText(data));
  return exitCodes.ok;
}

export const keyCommands: readonly Command[] = [
  {
    name: 'keys ls',
    usage: '[--status active|revoked|expired] [--service-account ID] [--org ID]',
    summary: 'List the keys of the organization: scope, status, last use, limits.',
    words: { min: 0, max: 0 },
    options: {
      status: { type: 'string', choices: ['active', 'revoked', 'expired'], about: 'default: all' },
      'service-account': { type: 'string', about: 'only keys of this service account: svc_acct_…' },
      ...orgOption,
    },
    run: list,
  },
  {
    name: 'keys show',
    usage: '',
    summary: 'Show the key of this login: models, what remains of its limits, budgets, spending.',
    words: { min: 0, max: 0 },
    options: {},
    run: showOwn,
  },
  {
    name: 'keys create',
    usage:
      'NAME [--scope SCOPE] [--expiry never|7d|30d|90d|1y] [--project ID] [--models A,B] [--requests-per-minute N]…',
    summary: 'Create a key; its secret is shown only once, and its limits default to those of the organization.',
    words: { min: 1, max: 1 },
    options: {
      scope: { type: 'string', choices: ['inference', 'management'], about: 'default: inference' },
      expiry: { type: 'string', choices: ['never', '7d', '30d', '90d', '1y'], about: 'default: never' },
      project: {
        type: 'string',
        about: 'project of the key: proj_…; default: the first project of the organization',
      },
      'service-account': {
        type: 'string',
        about: 'service account that the key acts for, in its project: svc_acct_…; default: you',
      },
      ...settings,
    },
    run: create,
  },
  {
    name: 'keys edit',
    usage: 'ID|NAME [--name NAME] [--models A,B|all] [--requests-per-minute N|none]…',
    summary: 'Change name, limits, models and settings of a key.',
    words: { min: 1, max: 1 },
    names: 'keys',
    options: { name: { type: 'string', about: 'new name' }, ...settings },
    run: edit,
  },
  {
    name: 'keys rotate',
    usage: 'ID|NAME [--grace 24h]',
    summary: 'Create a new secret for a key; it is shown only once, and the former secret stays valid for a while.',
    words: { min: 1, max: 1 },
    names: 'keys',
    options: {
      grace: { type: 'string', about: 'how long the former secret stays valid: 0s, 30m, 24h, 7d; default: 24h' },
      ...orgOption,
    },
    run: rotate,
  },
  {
    name: 'keys revoke',
    usage: 'ID|NAME [--yes]',
    summary: 'Revoke a key permanently; asks first.',
    words: { min: 1, max: 1 },
    names: 'keys',
    options: { ...yesOption, ...orgOption },
    run: revoke,
  },
];
