import {
  type Command,
  type CommandContext,
  exitCodes,
  jsonText,
  parseAnswer,
  queryOf,
  type Read,
  textFlag,
  UsageError,
} from '#edge/cli/shell/shell.ts';

/** Commands over the monthly budget of an organization for node-hours and GPU-hours. */

const budget = async () => (await import('#edge/contract/costs.ts')).costBudgetSchema;
type Budget = Read<typeof budget>;

function pathIn(context: CommandContext): string {
  const query = queryOf(context, ['org=organization_id']).toString();
  return `/v1/billing/budget${query === '' ? '' : `?${query}`}`;
}

const amountsText = (amounts: Budget['spent']): string =>
  amounts.length === 0 ? '0' : amounts.map(({ amount, currency }) => `${amount} ${currency}`).join(', ');

const partText = (percent: number | null): string => (percent === null ? '' : ` (${percent} % of the budget)`);

async function print(context: CommandContext, answer: unknown): Promise<number> {
  const { month, spent, forecast, ...one } = await parseAnswer(budget, answer);
  const set = one.budget;
  const budgetText =
    set === null ? 'none' : `${set.amount} ${set.currency} a month, alerts at ${set.alert_percents.join(', ')} %`;
  const text =
    `budget: ${budgetText}\n${month}: ${amountsText(spent)}${partText(one.spent_percent)}\n` +
    `forecast: ${amountsText(forecast)}${partText(one.forecast_percent)}, if all that runs now keeps running\n`;
  context.out(context.json ? jsonText(answer) : text);
  return exitCodes.ok;
}

async function show(context: CommandContext): Promise<number> {
  return print(context, await context.api.call('GET', pathIn(context)));
}

async function set(context: CommandContext): Promise<number> {
  const [currency, alerts] = ['currency', 'alerts'].map((name) => textFlag(context, name));
  const percents = alerts?.split(',').map((text) => text.trim());
  if (percents?.some((text) => !/^\d{1,9}$/.test(text)) === true) {
    throw new UsageError('--alerts must be percentages, such as 80,100');
  }
  const body = {
    amount: context.words[0],
    ...(currency && { currency }),
    ...(percents && { alert_percents: percents.map(Number) }),
  };
  return print(context, await context.api.call('PUT', pathIn(context), { body }));
}

async function remove(context: CommandContext): Promise<number> {
  await context.api.call('DELETE', pathIn(context));
  return show(context);
}

const org = { org: { type: 'string', about: 'another organization: org_…' } } as const;

export const costBudgetCommands: readonly Command[] = [
  {
    name: 'cost-budget show',
    usage: '[--org ORG]',
    summary: 'Show the monthly budget for nodes and GPUs, with the costs and the forecast of this month.',
    words: { min: 0, max: 0 },
    options: org,
    run: show,
  },
  {
    name: 'cost-budget set',
    usage: 'AMOUNT [--currency CODE] [--alerts 80,100] [--org ORG]',
    summary: 'Set the monthly budget for nodes and GPUs; it sends alerts and stops nothing.',
    words: { min: 1, max: 1 },
    options: {
      currency: { type: 'string', about: 'default: the billing currency' },
      alerts: { type: 'string', about: 'percentages at which an alert is sent; default: 80,100' },
      ...org,
    },
    run: set,
  },
  {
    name: 'cost-budget rm',
    usage: '[--org ORG]',
    summary: 'Remove the monthly budget for nodes and GPUs.',
    words: { min: 0, max: 0 },
    options: org,
    run: remove,
  },
];
