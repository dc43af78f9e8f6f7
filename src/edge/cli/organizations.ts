import {
  cleanLine,
  type Command,
  type CommandContext,
  confirm,
  type Ending,
  exitCodes,
  FailedError,
  jsonText,
  parseAnswer,
  pathOf,
  printList,
  printOne,
  type Read,
  readCursorList,
  readList,
  textFlag,
  UsageError,
  yesOption,
} from '#edge/cli/shell/shell.ts';
import { limitOptions, limitsOf, limitsText, modelsOf, numberOrNone } from './keys.ts';

/** Commands over /v1/organizations. Fields that a newer gateway adds to its answers are ignored. */

const organization = async () => (await import('#edge/contract/organizations.ts')).organizationSchema;
type Organization = Read<typeof organization>;

const created = async () => (await import('#edge/contract/organizations.ts')).createdOrganizationSchema;

const collection = '/v1/organizations';

/** Amounts are exact decimals, in USD. */
const reported = async () => (await import('#edge/contract/organizations.ts')).reportedOrganizationSchema;

const leaveOut = ['LIMITS OF NEW KEYS', 'KEYS', 'SPENT IN 30 DAYS ($)'];
const headings = [
  'ORGANIZATION',
  'NAME',
  'STATUS',
  'BALANCE ($)',
  'SPENT IN 30 DAYS ($)',
  'KEYS',
  'LIMITS OF NEW KEYS',
];

const row = (one: Read<typeof reported>): string[] => [
  one.id,
  one.name,
  one.status,
  one.balance,
  one.spent_30_days,
  one.max_active_keys === null ? String(one.active_keys) : `${one.active_keys} of ${one.max_active_keys}`,
  limitsText({ ...one.default_limits, models: one.models }),
];

const readAll = (context: CommandContext): Promise<readonly Organization[]> =>
  readCursorList(context, {
    path: collection,
    item: organization,
    query: {},
    limit: Infinity,
    parameter: 'cursor',
  });

async function list(context: CommandContext): Promise<number> {
  const query = new URLSearchParams({ sort: '-created_at' });
  const all = await readList(context, { path: '/v1/admin/organizations', item: reported, query });
  const found = all.filter(({ status }) => context.flags['all'] === true || status !== 'closed');
  return printList(context, found, {
    headings,
    row,
    none: 'no organizations; create one with "headgate orgs create NAME"',
    leaveOut,
  });
}

/** Returns the path of the organization with this id, or with this name if it is not closed. @throws FailedError */
async function pathOfNamed(context: CommandContext): Promise<string> {
  const [word = ''] = context.words;
  if (word.startsWith('org_')) return pathOf(collection, word);
  const open = (await readAll(context)).filter(({ name, status }) => name === word && status !== 'closed');
  const [first, ...others] = open;
  if (first === undefined) {
    throw new FailedError(
      `no organization is named ${JSON.stringify(word)}; "headgate orgs ls" lists the organizations`,
    );
  }
  if (others.length === 0) return pathOf(collection, first.id);
  const ids = open.map(({ id }) => id).join(', ');
  throw new FailedError(`${open.length} organizations are named ${JSON.stringify(word)}; use an id: ${ids}`);
}

async function show(context: CommandContext): Promise<number> {
  return printOne(context, await pathOfNamed(context), organization);
}

async function create(context: CommandContext): Promise<number> {
  const answer = await context.api.call('POST', collection, { body: { name: context.words[0] } });
  const made = await parseAnswer(created, answer);
  const text =
    `organization "${cleanLine(made.name)}" (${made.id}), with an empty wallet; add credit: headgate wallet credit USD ` +
    `--reference TEXT --org ${made.id}\nIts management key is shown only once, so store it now:\n\n  ${made.management_key}\n\n`;
  context.out(context.json ? jsonText(answer) : text);
  return exitCodes.ok;
}

async function edit(context: CommandContext): Promise<number> {
  const name = textFlag(context, 'name');
  const keysMax = numberOrNone(context, 'max-active-keys');
  const models = modelsOf(context);
  const limits = limitsOf(context);
  const alertBelow = textFlag(context, 'wallet-alert-below');
  const mayApply = textFlag(context, 'members-may-apply');
  if (mayApply !== null && mayApply !== 'on' && mayApply !== 'off')
    throw new UsageError('--members-may-apply must be on or off');
  const body = {
    ...(name !== null && { name }),
    ...(alertBelow !== null && { wallet_alert_below: alertBelow === 'none' ? null : alertBelow }),
    ...(keysMax !== undefined && { max_active_keys: keysMax }),
    ...(mayApply !== null && { members_may_apply: mayApply === 'on' }),
    ...(models !== undefined && { models }),
    ...(Object.keys(limits).length > 0 && { default_limits: limits }),
  };
  if (Object.keys(body).length === 0)
    throw new UsageError('nothing to change; "headgate orgs edit --help" lists the options');
  return change(context, await pathOfNamed(context), body);
}

async function change(context: CommandContext, path: string, body: object): Promise<number> {
  const answer = await context.api.call('PATCH', path, { body });
  return tell(context, answer);
}

async function tell({ json, out }: CommandContext, answer: unknown): Promise<number> {
  const { id, name, status, default_limits: limits, models } = await parseAnswer(organization, answer);
  const text = `${id} "${cleanLine(name)}": ${status}; limits of new keys: ${limitsText({ ...limits, models })}\n`;
  out(json ? jsonText(answer) : text);
  return exitCodes.ok;
}

/** @throws the errors of confirm */
async function ask(context: CommandContext, path: string, { verb, ...ending }: OrganizationEnding): Promise<void> {
  const { id, name } = await parseAnswer(organization, await context.api.call('GET', path));
  await confirm(context, { question: `${verb} the organization "${name}" (${id})?`, ...ending });
}

interface OrganizationEnding extends Omit<Ending, 'question'> {
  readonly verb: 'Suspend' | 'Close';
}

async function suspend(context: CommandContext): Promise<number> {
  const path = await pathOfNamed(context);
  const consequence = 'Its keys are rejected and its running streams end, until "headgate orgs resume".';
  await ask(context, path, { verb: 'Suspend', consequence, done: 'suspended' });
  return change(context, path, { status: 'suspended' });
}

async function resume(context: CommandContext): Promise<number> {
  return change(context, await pathOfNamed(context), { status: 'active' });
}

async function close(context: CommandContext): Promise<number> {
  const path = await pathOfNamed(context);
  const consequence =
    'Its keys are revoked and its running streams end, permanently. Wallet, usage and audit log stay readable.';
  await ask(context, path, { verb: 'Close', consequence, done: 'closed' });
  return tell(context, await context.api.call('DELETE', path));
}

const one = { min: 1, max: 1 } as const;

export const organizationCommands: readonly Command[] = [
  {
    name: 'orgs ls',
    usage: '[--all]',
    summary: 'List the organizations, newest first: status, balance, spending, keys, limits of new keys.',
    words: { min: 0, max: 0 },
    options: { all: { type: 'boolean', about: 'include closed organizations' } },
    run: list,
  },
  {
    name: 'orgs show',
    usage: 'ID|NAME',
    summary: 'Show an organization; its own management key can do this too, by id.',
    words: one,
    options: {},
    run: show,
  },
  {
    name: 'orgs create',
    usage: 'NAME',
    summary: 'Create an organization: with a project, a wallet and a management key, which is shown only once.',
    words: one,
    options: {},
    run: create,
  },
  {
    name: 'orgs edit',
    usage: 'ID|NAME [--name NAME] [--max-active-keys N|none] [--models A,B|all] [--requests-per-minute N|none]…',
    summary: 'Change an organization: name, models, active keys, wallet alert, rights of members, limits of new keys.',
    words: one,
    options: {
      name: { type: 'string', about: 'new name' },
      'wallet-alert-below': {
        type: 'string',
        about: 'balance in USD below which owners and administrators are notified by email; none turns it off',
      },
      'max-active-keys': {
        type: 'string',
        about: 'maximum active keys: a number, or none to use the default of the gateway',
      },
      'members-may-apply': {
        type: 'string',
        about: 'on: members apply stacks to its clusters; off: only owners and administrators',
      },
      models: { type: 'string', about: 'models that its keys may use, separated by commas, or all' },
      ...limitOptions,
    },
    run: edit,
  },
  {
    name: 'orgs suspend',
    usage: 'ID|NAME [--yes]',
    summary: 'Suspend an organization: reject its keys and end its streams until it is resumed; asks first.',
    words: one,
    options: yesOption,
    run: suspend,
  },
  {
    name: 'orgs resume',
    usage: 'ID|NAME',
    summary: 'Resume a suspended organization.',
    words: one,
    options: {},
    run: resume,
  },
  {
    name: 'orgs close',
    usage: 'ID|NAME [--yes]',
    summary: 'Close an organization and revoke its keys permanently; asks first.',
    words: one,
    options: yesOption,
    run: close,
  },
];
