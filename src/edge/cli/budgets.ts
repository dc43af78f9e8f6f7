import {
  cleanLine,
  type Command,
  type CommandContext,
  confirm,
  exitCodes,
  jsonText,
  parseAnswer,
  printList,
  queryText,
  type Read,
  readAfterList,
  textFlag,
  timeText,
  UsageError,
  yesOption,
} from '#edge/cli/shell/shell.ts';
import { findKeyId } from './keys.ts';
import { projectIdOf } from './projects.ts';

/** The commands over /v1/budgets. Fields that a newer gateway adds to its answers are ignored. */

const budget = async () => (await import('#edge/contract/budgets.ts')).budgetSchema;
type Budget = Read<typeof budget>;

const org = (context: CommandContext) => ({ organization_id: textFlag(context, 'org') });
const collection = '/v1/budgets';
const pathOf = (context: CommandContext, action = ''): string =>
  `${collection}/${encodeURIComponent(context.words[0] ?? '')}${action}${queryText(org(context))}`;

const scopeText = ({ scope: { type, id } }: Budget): string =>
  cleanLine(id === null ? 'each user' : type === 'user' ? `user ${id}` : id);

/** The amount, with a raise that is in effect. */
const amountOf = ({ amount, raise }: Budget): string => (raise === null ? amount : `${amount} + ${raise.amount}`);
const modelsOf = ({ models }: Budget): string => models?.map(cleanLine).join(' ') ?? 'all';

const headings = ['BUDGET', 'SCOPE', 'PERIOD', 'MODE', 'MODELS', 'USD', 'SPENT', 'REMAINING', 'RESETS (UTC)', 'ALERTS'];
const row = (one: Budget): string[] => [
  one.id,
  scopeText(one),
  one.period,
  one.mode,
  modelsOf(one),
  amountOf(one),
  one.spent ?? '-',
  one.remaining ?? '-',
  one.resets_at === null ? 'never' : timeText(one.resets_at),
  one.alert_percents.map((percent) => `${percent}%`).join(' ') || '-',
];
const none = 'no budgets; create one, such as with "headgate budgets create 10 --key NAME"';

async function list(context: CommandContext): Promise<number> {
  return printList(context, await readAfterList(context, { path: collection, item: budget }), {
    headings,
    row,
    none,
  });
}

/** @throws UsageError if no scope or several are named; FailedError if no key or project has the name */
async function scopeOf(context: CommandContext): Promise<{ readonly type: string; readonly id: string | null }> {
  const [key, project, user] = ['key', 'project', 'user'].map((name) => textFlag(context, name));
  const isEach = context.flags['each-user'] === true;
  const named = [key, project, user].filter((word) => word !== null && word !== undefined).length + (isEach ? 1 : 0);
  if (named !== 1) throw new UsageError('give exactly one of --key, --project, --user and --each-user');
  if (isEach) return { type: 'user', id: null };
  if (typeof key === 'string') return { type: 'api_key', id: await findKeyId(context, key) };
  if (typeof user === 'string') return { type: 'user', id: user };
  return { type: 'project', id: await projectIdOf(context, project ?? '') };
}

/** @throws UsageError */
function percentsOf(context: CommandContext): readonly number[] | null {
  const text = textFlag(context, 'alerts');
  if (text === null) return null;
  if (text === 'none') return [];
  const all = text.split(',').map(Number);
  if (all.every((percent) => Number.isInteger(percent) && percent > 0)) return all;
  throw new UsageError('--alerts must be whole percentages such as 80,100, or none');
}

function fieldsOf(context: CommandContext) {
  const percents = percentsOf(context);
  const mode = textFlag(context, 'mode');
  return { ...(mode !== null && { mode }), ...(percents !== null && { alert_percents: percents }) };
}

function madeText(one: Budget): string {
  const models = one.models === null ? '' : ` and the models ${modelsOf(one)}`;
  const until = one.raise === null ? '' : ` until ${timeText(one.raise.until)}`;
  return `${one.id}: ${one.period} ${one.mode} budget for ${scopeText(one)}${models}, ${amountOf(one)} USD${until}\n`;
}

async function show(context: CommandContext, answer: unknown): Promise<number> {
  context.out(context.json ? jsonText(answer) : madeText(await parseAnswer(budget, answer)));
  return exitCodes.ok;
}

async function create(context: CommandContext): Promise<number> {
  const period = textFlag(context, 'period') ?? 'monthly';
  const models = textFlag(context, 'models')?.split(',');
  const opening = textFlag(context, 'opening-spent');
  const body = {
    scope: await scopeOf(context),
    period,
    amount: context.words[0],
    ...(models !== undefined && { models }),
    ...(opening !== null && { opening_spent: opening }),
    ...fieldsOf(context),
  };
  return show(context, await context.api.call('POST', collection + queryText(org(context)), { body }));
}

async function edit(context: CommandContext): Promise<number> {
  const amount = textFlag(context, 'amount');
  const body = { ...(amount !== null && { amount }), ...fieldsOf(context) };
  if (Object.keys(body).length === 0) throw new UsageError('nothing to change; give --amount, --mode or --alerts');
  return show(context, await context.api.call('PATCH', pathOf(context), { body }));
}

/** @throws UsageError */
function untilOf(text: string): number {
  const ms = Date.parse(text);
  if (!Number.isNaN(ms)) return Math.floor(ms / 1000);
  throw new UsageError('--until must be a date or time such as 2027-01-31 or 2027-01-31T18:00:00Z');
}

async function raise(context: CommandContext): Promise<number> {
  const [, amount] = context.words;
  const until = textFlag(context, 'until');
  const isEnd = amount === 'none';
  if (isEnd !== (until === null)) throw new UsageError('give an amount and --until, or none to end the raise');
  const body = { raise: until === null ? null : { amount, until: untilOf(until) } };
  return show(context, await context.api.call('PATCH', pathOf(context), { body }));
}

async function reset(context: CommandContext): Promise<number> {
  const one = await parseAnswer(budget, await context.api.call('GET', pathOf(context)));
  await confirm(context, {
    question: `Reset the ${one.period} ${one.mode} budget for ${scopeText(one)} (${one.id}), ${one.spent ?? '-'} USD spent?`,
    consequence: 'What was spent in this period no longer counts.',
    done: 'reset',
  });
  const answer = await context.api.call('POST', pathOf(context, '/reset'));
  const now = await parseAnswer(budget, answer);
  context.out(
    context.json ? jsonText(answer) : `${now.id}: reset, ${now.spent ?? '-'} of ${amountOf(now)} USD spent\n`,
  );
  return exitCodes.ok;
}

async function remove(context: CommandContext): Promise<number> {
  const one = await parseAnswer(budget, await context.api.call('GET', pathOf(context)));
  await confirm(context, {
    question: `Delete the ${one.period} ${one.mode} budget for ${scopeText(one)} (${one.id})?`,
    consequence: 'From the next request on, it no longer limits spending.',
    done: 'deleted',
  });
  const answer = await context.api.call('DELETE', pathOf(context));
  context.out(context.json ? jsonText(answer) : `${one.id}: deleted\n`);
  return exitCodes.ok;
}

const orgOption = { org: { type: 'string', about: 'another organization, for platform administrators' } } as const;
const changed = {
  mode: {
    type: 'string',
    choices: ['hard', 'soft'],
    about: 'hard: reject requests over the budget; soft: only send alerts',
  },
  alerts: {
    type: 'string',
    about: 'percentages of the amount at which an alert is sent (email, webhooks), such as 80,100, or none',
  },
  ...orgOption,
} as const;

export const budgetCommands: readonly Command[] = [
  {
    name: 'budgets ls',
    usage: '[--org ID]',
    summary: 'List the budgets with their spending.',
    words: { min: 0, max: 0 },
    options: orgOption,
    run: list,
  },
  {
    name: 'budgets create',
    usage:
      'USD (--key ID|NAME|--project ID|NAME|--user NAME|--each-user) [--period PERIOD] [--models LIST] [--mode hard|soft] [--opening-spent USD] [--alerts LIST] [--org ID]',
    summary: 'Create a budget for a key, a project, an end user, or each end user.',
    words: { min: 1, max: 1 },
    options: {
      key: { type: 'string', about: 'limit the spending of this key' },
      project: { type: 'string', about: 'limit the spending of this project' },
      user: { type: 'string', about: 'limit the spending of this end user, as named in requests' },
      'each-user': { type: 'boolean', about: 'limit the spending of each end user without a budget of their own' },
      period: {
        type: 'string',
        choices: ['daily', 'weekly', 'monthly', 'quarterly', 'yearly', 'total'],
        about: 'in UTC; total: never resets; default: monthly',
      },
      models: { type: 'string', about: 'count only these models, together, such as chat,large; default: all' },
      'opening-spent': { type: 'string', about: 'USD already spent elsewhere in this period' },
      ...changed,
    },
    run: create,
  },
  {
    name: 'budgets edit',
    usage: 'ID [--amount USD] [--mode hard|soft] [--alerts LIST] [--org ID]',
    summary: 'Change a budget, on all gateways immediately.',
    words: { min: 1, max: 1 },
    options: { amount: { type: 'string', about: 'USD per period' }, ...changed },
    run: edit,
  },
  {
    name: 'budgets raise',
    usage: 'ID USD|none [--until TIME] [--org ID]',
    summary: 'Raise a budget until a given time, or end the raise.',
    words: { min: 2, max: 2 },
    options: { until: { type: 'string', about: 'end of the raise, such as 2027-01-31 (UTC)' }, ...orgOption },
    run: raise,
  },
  {
    name: 'budgets reset',
    usage: 'ID [--org ID] [--yes]',
    summary: 'Ignore what was spent in this period so far; asks first.',
    words: { min: 1, max: 1 },
    options: { ...yesOption, ...orgOption },
    run: reset,
  },
  {
    name: 'budgets rm',
    usage: 'ID [--org ID] [--yes]',
    summary: 'Delete a budget; asks first.',
    words: { min: 1, max: 1 },
    options: { ...yesOption, ...orgOption },
    run: remove,
  },
];
