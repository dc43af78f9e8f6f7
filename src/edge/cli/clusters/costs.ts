import {
  cleanLine,
  type Command,
  type CommandContext,
  exitCodes,
  FailedError,
  jsonText,
  parseAnswer,
  queryOf,
  type Read,
  renderTable,
  UsageError,
} from '#edge/cli/shell/shell.ts';
import { printSeries } from './cost-series.ts';
import { sayUnallocated } from './find-cluster.ts';

/** The command over /v1/billing/costs. Fields that a newer gateway adds to its answers are ignored. */

const report = async () => (await import('#edge/contract/costs.ts')).costReportSchema;

type Report = Read<typeof report>;
type Warning = Report['warnings'][number];
type Line = Report['organizations'][number]['clusters'][number]['line_items'][number];

/** Milliseconds to wait for a report: on a busy database the sum of a year's node-hours and GPU-hours takes seconds. */
const answerTimeoutMs = 300_000;

async function costs(context: CommandContext): Promise<number> {
  const isCsv = context.flags['csv'] === true;
  if (isCsv && context.json) throw new UsageError('give --csv or --json, not both');
  const asked = readQuery(context);
  const query = asked.toString();
  if (asked.has('step') || asked.has('group_by')) {
    if (isCsv) throw new UsageError('--csv has no steps and groups; use --json');
    return printSeries(context, query, answerTimeoutMs);
  }
  if (isCsv) {
    for await (const text of context.api.text(`/v1/billing/costs.csv?${query}`, { answerTimeoutMs })) context.out(text);
    return exitCodes.ok;
  }
  const answer = await context.api.call('GET', `/v1/billing/costs?${query}`, { answerTimeoutMs });
  const parsed = await parseAnswer(report, answer);
  if (context.json) context.out(jsonText(answer));
  else context.out(textOf(parsed, context.terminal.columns) + (await hintOf(context, parsed)));
  return exitCodes.ok;
}

/** Returns a hint why a report is empty, since nothing else explains that. A hint that cannot be read is left out. */
async function hintOf(context: CommandContext, { organizations }: Report): Promise<string> {
  if (organizations.length > 0) return '';
  try {
    const hint = await sayUnallocated(context, queryOf(context, ['org=organization_id']));
    return `${hint ?? 'costs start with a cluster that has nodes in use: "headgate clusters ls" lists the clusters'}\n`;
  } catch (error) {
    if (error instanceof FailedError) return '';
    throw error;
  }
}

function readQuery(context: CommandContext): URLSearchParams {
  const query = queryOf(context, ['month', 'from', 'to', 'tz', 'org=organization_id', 'step', 'group-by=group_by']);
  // The current month, by the clock of the requested zone.
  if (!query.has('month') && !query.has('from') && !query.has('to')) query.set('month', thisMonth(query.get('tz')));
  return query;
}

function thisMonth(tz: string | null): string {
  try {
    const parts = new Intl.DateTimeFormat('en-CA', { timeZone: tz ?? 'UTC', year: 'numeric', month: '2-digit' });
    return parts.format(new Date()).slice(0, 'YYYY-MM'.length);
  } catch {
    throw new UsageError('--tz must be a time zone by its IANA name, such as Europe/Berlin');
  }
}

const headings = ['ORGANIZATION', 'CLUSTER', 'PROFILE', 'NODE-HOURS', 'GPU-HOURS', 'COST', ''];

function textOf(
  { window, totals, grand_total: sums, organizations, warnings }: Report,
  columns: number | null,
): string {
  const { from, to, tz, as_of: asOf } = window;
  const head = `${minuteText(from, tz)} to ${minuteText(to, tz)} (${tz}), as of ${minuteText(asOf, tz)}\n`;
  const rows = organizations.flatMap((one) =>
    one.clusters.flatMap(({ name, running, line_items: items }) =>
      items.map((item) => [
        one.name,
        name,
        item.hardware_profile,
        hoursText(item.node_hours),
        hoursText(item.gpu_hours),
        item.billed === null ? '-' : amountText(item.billed),
        remark(item, running),
      ]),
    ),
  );
  const table = rows.length === 0 ? 'no usage\n' : renderTable(headings, rows, columns);
  const cost = sums.length === 0 ? 'no cost' : sums.map(amountText).join(', ');
  const total = `total: ${hoursText(totals.node_hours)} node-hours, ${hoursText(totals.gpu_hours)} GPU-hours, ${cost}\n`;
  return `${head}${table}${total}${warnings.map(warningText).join('')}`;
}

/** Formats a time as `2026-11-01 00:00`, in the zone of the report. */
const minuteText = (time: string, tz: string): string =>
  new Date(time).toLocaleString('sv-SE', { timeZone: tz, dateStyle: 'short', timeStyle: 'short' });

const hoursText = (value: number): string => String(value);
const amountText = ({ amount: value, currency }: Report['grand_total'][number]): string => `${value} ${currency}`;

function remark({ rated, estimated }: Line, running: boolean): string {
  const words = [running ? 'running' : '', rated ? '' : 'no price', estimated ? 'end estimated' : ''];
  return words.filter((word) => word !== '').join(', ');
}

/** Returns a warning about hours that a report leaves out, and who can fix that. */
function warningText({ code, from, to, hardware_profile: profile }: Warning): string {
  return cleanLine(`warning: ${warningSentence(code, { from, to, profile })}`) + '\n';
}

interface Gap {
  readonly from: string | undefined;
  readonly to: string | undefined;
  readonly profile: string | undefined;
}

function warningSentence(code: string, { from = '?', to = '?', profile = '?' }: Gap): string {
  switch (code) {
    case 'CONVERSION_RATE_MISSING':
      return (
        `some costs are shown in ${from}, because no conversion rate to ${to} covers their time; a platform ` +
        'administrator adds one: headgate conversion-rates add'
      );
    case 'RATE_CARD_MISSING':
      return (
        `${profile} has hours without a price, which are counted at no cost; a platform administrator adds a rate card: ` +
        'headgate rate-cards add'
      );
    case 'AMBIGUOUS_RATE':
      return (
        `${profile} has prices in several currencies but not in the organization's, so its hours are counted at no ` +
        'cost; an administrator of the organization chooses the currency: PATCH /v1/orgs/ID/billing-currency'
      );
    case 'GPU_PRICE_MISSING':
      return (
        `GPU-hours of inference on ${profile} are counted at no cost: its rate card has no gpu_hour; a platform ` +
        'administrator adds a rate card with it: headgate rate-cards add'
      );
    default:
      return code;
  }
}

export const costsCommand: Command = {
  name: 'costs',
  usage: '[--month MONTH | --from TIME --to TIME] [--tz ZONE] [--org ID] [--step STEP] [--group-by GROUP] [--csv]',
  summary: 'Show node-hours and GPU-hours with their cost; default: this month.',
  words: { min: 0, max: 0 },
  options: {
    month: { type: 'string', about: 'such as 2026-10; default: this month' },
    from: { type: 'string', about: 'date or RFC 3339 time' },
    to: { type: 'string', about: 'end, exclusive' },
    tz: { type: 'string', about: 'time zone of dates, such as Europe/Berlin; default: UTC' },
    org: { type: 'string', about: 'only this organization: org_…' },
    step: { type: 'string', choices: ['1h', '1d', '1mo'], about: 'costs by hours, days or months' },
    'group-by': {
      type: 'string',
      about: 'organization, cluster, node, hardware_profile, stack or label:KEY',
    },
    csv: { type: 'boolean', about: 'print CSV with the columns of FOCUS 1.2' },
  },
  run: costs,
};
