import {
  parseAnswer,
  type CommandContext,
  exitCodes,
  jsonText,
  type Read,
  renderTable,
} from '#edge/cli/shell/shell.ts';

/** Costs over time and by group, as one table. */

const seriesSchema = async () => (await import('#edge/contract/costs.ts')).costSeriesSchema;

type SeriesAnswer = Read<typeof seriesSchema>;
type Group = SeriesAnswer['groups'][number];

/** @param query of the window, with `step` and `group_by` */
export async function printSeries(context: CommandContext, query: string, answerTimeoutMs: number): Promise<number> {
  const answer = await context.api.call('GET', `/v1/billing/costs/series?${query}`, { answerTimeoutMs });
  const series = await parseAnswer(seriesSchema, answer);
  context.out(context.json ? jsonText(answer) : textOf(series, context.terminal.columns));
  return exitCodes.ok;
}

const costText = (amounts: Group['amounts']): string =>
  amounts.length === 0 ? '-' : amounts.map(({ amount, currency }) => `${amount} ${currency}`).join(', ');

function textOf({ window: { tz }, steps, totals, grand_total: amounts }: SeriesAnswer, columns: number | null): string {
  const headings = [`START (${tz})`, 'GROUP', 'NODE-HOURS', 'GPU-HOURS', 'COST'];
  const cells = (one: Omit<Group, 'name' | 'value'>): string[] => [
    String(one.node_hours),
    String(one.gpu_hours),
    costText(one.amounts),
  ];
  const rows = steps.flatMap((step) => {
    const start = new Date(step.from).toLocaleString('sv-SE', { timeZone: tz, dateStyle: 'short', timeStyle: 'short' });
    // A step without usage has one row, so that no step is missing.
    if (step.groups.length === 0) return [[start, '-', ...cells(step)]];
    return step.groups.map((group) => [start, group.name ?? '(none)', ...cells(group)]);
  });
  return renderTable(headings, [...rows, ['total', '', ...cells({ ...totals, amounts })]], columns);
}
