import {
  type Command,
  type CommandContext,
  exitCodes,
  jsonText,
  parseAnswer,
  queryText,
  type Read,
  readCursorList,
  renderTable,
  textFlag,
  timeText,
  UsageError,
} from '#edge/cli/shell/shell.ts';
import { findKeyId } from './keys.ts';
import { countFlag } from './wallet.ts';

/** The commands over /v1/usage. Fields that a newer gateway adds to its answers are ignored. */

const dimensions = ['model', 'key', 'project', 'day', 'hour'] as const;
/** API fields of a group, by dimension. */
const fields = { model: 'model', key: 'key_id', project: 'project_id', day: 'day', hour: 'hour' } as const;

const summary = async () => (await import('#edge/contract/usage.ts')).usageSummarySchema;

const scope = (context: CommandContext) => ({
  from: textFlag(context, 'from'),
  to: textFlag(context, 'to'),
  organization_id: textFlag(context, 'org'),
});

async function usage(context: CommandContext): Promise<number> {
  const by = (textFlag(context, 'by') ?? 'model').split(',').map((word) => dimensionOf(word.trim()));
  const query = queryText({ ...scope(context), group_by: by.map((one) => fields[one]).join(',') });
  const answer = await context.api.call('GET', `/v1/usage/summary${query}`, { answerTimeoutMs: 300_000 });
  const parsed = await parseAnswer(summary, answer);
  if (context.json) {
    context.out(jsonText(answer));
    return exitCodes.ok;
  }
  const numbers = (one: Read<typeof summary>['totals']): string[] => [
    String(one.num_model_requests),
    String(Object.values(one.refusals).reduce((sum, count) => sum + count, 0)),
    String(one.input_tokens),
    String(one.input_cached_tokens),
    String(one.output_tokens),
    one.cost,
  ];
  const rows = parsed.data.map((one) => [...by.map((name) => cellOf(one[fields[name]], name)), ...numbers(one)]);
  const total = ['total', ...by.slice(1).map(() => ''), ...numbers(parsed.totals)];
  const headings = [
    ...by.map((name) => name.toUpperCase()),
    'REQUESTS',
    'REJECTED',
    'INPUT',
    'CACHED',
    'OUTPUT',
    'USD',
  ];
  const table = renderTable(headings, [...rows, total], context.terminal.columns);
  context.out(`${timeText(parsed.from)} to ${timeText(parsed.to)} UTC\n${table}`);
  return exitCodes.ok;
}

function dimensionOf(word: string): (typeof dimensions)[number] {
  const found = dimensions.find((one) => one === word);
  if (found !== undefined) return found;
  throw new UsageError(
    `--by must be one or more of ${dimensions.join(', ')}, separated by commas; not ${JSON.stringify(word)}`,
  );
}

function cellOf(value: unknown, name: string): string {
  if (typeof value === 'number' && name === 'hour') return timeText(value).slice(0, 16);
  return typeof value === 'string' ? value : '-';
}

const request = async () => (await import('#edge/contract/requests.ts')).usageRequestSchema;

async function requests(context: CommandContext): Promise<number> {
  const limit = countFlag(context, 'limit', { usual: 20, max: 100_000 });
  const key = textFlag(context, 'key');
  const query = {
    model: textFlag(context, 'model'),
    key_id: key === null ? null : await findKeyId(context, key),
    outcome: textFlag(context, 'outcome'),
    status: textFlag(context, 'status'),
    end_user: textFlag(context, 'user'),
    error: textFlag(context, 'error'),
    ...scope(context),
  };
  const path = '/v1/usage/requests';
  const found = await readCursorList(context, { path, item: request, query, limit, parameter: 'cursor' });
  const headings = ['TIME (UTC)', 'REQUEST', 'MODEL', 'STATUS', 'INPUT', 'OUTPUT', 'USD', 'FIRST BYTE', 'TOTAL', ''];
  const { columns } = context.terminal;
  const leaveOut = ['FIRST BYTE', 'REQUEST', 'TOTAL', 'STATUS', 'OUTPUT', 'INPUT'];
  const text = found.length === 0 ? 'no requests\n' : renderTable(headings, found.map(row), columns, leaveOut);
  context.out(context.json ? jsonText({ data: found }) : text);
  return exitCodes.ok;
}

function row(one: Read<typeof request>): string[] {
  const { first_byte: first, total } = one.timings_ms;
  const end = one.outcome === 'completed' ? '' : [one.outcome, one.reason].filter(Boolean).join(': ');
  const instead = (one.fallback_for ?? '') === '' ? '' : `fallback for ${one.fallback_for}`;
  const remark = [end, instead].filter(Boolean).join(', ');
  const tokens = [String(one.input_tokens), String(one.output_tokens)];
  const times = [first === null ? '-' : `${first} ms`, `${total} ms`];
  return [timeText(one.created_at), one.id, one.model, String(one.status), ...tokens, one.cost, ...times, remark];
}

const span = {
  from: { type: 'string', about: 'date or RFC 3339 time; default: the start of this month' },
  to: { type: 'string', about: 'end, exclusive; default: now' },
  org: { type: 'string', about: 'another organization, for platform administrators' },
} as const;

export const usageCommands: readonly Command[] = [
  {
    name: 'usage',
    usage: '[--by model,key,project,day,hour] [--from TIME] [--to TIME] [--org ID]',
    summary: 'Sum up requests, tokens and cost; default: this month, by model.',
    words: { min: 0, max: 0 },
    options: { by: { type: 'string', about: 'one or more, separated by commas; default: model' }, ...span },
    run: usage,
  },
  {
    name: 'usage requests',
    usage:
      '[--limit N] [--model ID] [--key KEY] [--outcome OUTCOME] [--status STATUS] [--user USER] [--error TEXT] [--from TIME] [--to TIME] [--org ID]',
    summary: 'List requests, newest first: tokens, cost, times.',
    words: { min: 0, max: 0 },
    options: {
      limit: { type: 'string', about: 'number of requests; default: 20' },
      model: { type: 'string', names: 'models', about: 'only this model' },
      key: { type: 'string', names: 'keys', about: 'only this key, by name or id' },
      outcome: {
        type: 'string',
        choices: ['completed', 'aborted', 'ended', 'failed'],
        about: 'only this outcome; default: all',
      },
      status: { type: 'string', about: 'only this HTTP status' },
      user: { type: 'string', about: 'only this end user' },
      error: { type: 'string', about: 'only errors whose code contains this text' },
      ...span,
    },
    run: requests,
  },
];
