import { setTimeout as sleep } from 'node:timers/promises';
import {
  type Command,
  type CommandContext,
  createPatience,
  exitCodes,
  FailedError,
  jsonText,
  parseAnswer,
  queryText,
  type Read,
  readCursorList,
  renderTable,
  textFlag,
  timeText,
} from '#edge/cli/shell/shell.ts';

/** `headgate top`: engines, spend and the newest requests, redrawn until Ctrl-C. */

const engines = async () => (await import('#edge/contract/engines.ts')).engineListSchema;
const summary = async () => (await import('#edge/contract/usage.ts')).usageSummarySchema;
const request = async () => (await import('#edge/contract/requests.ts')).usageRequestSchema;

const pauseMs = 2000;
const requestsShown = 10;

interface State {
  /** Null for a caller that may not see the engines. */
  readonly engines: Read<typeof engines>['data'] | null;
  readonly today: Read<typeof summary>;
  readonly requests: readonly Read<typeof request>[];
}

async function read(context: CommandContext): Promise<State> {
  const { api } = context;
  const organization = textFlag(context, 'org');
  const from = new Date().toISOString().slice(0, 10);
  const query = queryText({ from, group_by: 'model', latency: 'true', organization_id: organization });
  const [list, today, requests] = await Promise.all([
    readEngines(context),
    api.call('GET', `/v1/usage/summary${query}`).then((answer) => parseAnswer(summary, answer)),
    readCursorList(context, {
      path: '/v1/usage/requests',
      item: request,
      query: { organization_id: organization },
      limit: requestsShown,
      parameter: 'cursor',
    }),
  ]);
  return { engines: list, today, requests };
}

async function readEngines({ api }: CommandContext): Promise<State['engines']> {
  try {
    return (await parseAnswer(engines, await api.call('GET', '/v1/admin/engines'))).data;
  } catch (error) {
    if (error instanceof FailedError && error.code === 'insufficient_scope') return null;
    throw error;
  }
}

function screen({ engines: list, today, requests }: State, columns: number | null): string {
  const number = (value: number | undefined): string => (value === undefined ? '-' : String(Math.round(value)));
  const models = today.data.map(({ model, num_model_requests: count, outcomes, cost, latency }) => [
    model ?? '-',
    String(count),
    String(outcomes.failed + outcomes.ended),
    number(latency?.first_byte_ms?.p95),
    number(latency?.tokens_per_second?.p50),
    cost,
  ]);
  const replicas = (list ?? []).map(({ id, state, replicas: all, queue }) => {
    const ready = all.filter((one) => one.state === 'ready').length;
    return [id, state, `${ready}/${all.length}`, String(queue.running), String(queue.waiting)];
  });
  const rows = requests.map((one) => [
    timeText(one.created_at),
    String(one.status),
    String(one.input_tokens),
    String(one.output_tokens),
    `${one.timings_ms.total} ms`,
    one.cost,
    one.model,
  ]);
  const parts = [
    `${timeText(Math.floor(Date.now() / 1000))} UTC, spent today: $${today.totals.cost}\n`,
    ...(list === null ? [] : [renderTable(['ENGINE', 'STATE', 'READY', 'RUNNING', 'WAITING'], replicas, columns)]),
    renderTable(['MODEL TODAY', 'REQUESTS', 'ERRORS', 'FIRST TOKEN P95 MS', 'TOKENS/S', 'USD'], models, columns),
    renderTable(['TIME (UTC)', 'STATUS', 'INPUT', 'OUTPUT', 'TOTAL', 'USD', 'MODEL'], rows, columns),
  ];
  return parts.join('\n');
}

async function top(context: CommandContext): Promise<number> {
  const { json, out, terminal } = context;
  const isOnce = context.flags['once'] === true || !terminal.isWatched;
  if (isOnce) {
    const state = await read(context);
    out(json ? jsonText(state) : screen(state, terminal.columns));
    return exitCodes.ok;
  }
  const patience = createPatience(context);
  for (;;) {
    try {
      const state = await read(context);
      patience.arrived();
      if (json) out(`${JSON.stringify(state)}\n`);
      else redraw(context, screen(state, terminal.columns));
    } catch (error) {
      patience.lost(error);
    }
    await sleep(pauseMs);
  }
}

/** Draws over the former screen: moves to its corner and clears what follows. */
function redraw({ out }: CommandContext, text: string): void {
  process.stdout.write('\u001b[H\u001b[J');
  out(
    `${text
      .split('\n')
      .slice(0, process.stdout.rows - 1)
      .join('\n')}\n`,
  );
}

export const topCommand: Command = {
  name: 'top',
  usage: '[--once] [--org ID]',
  summary: 'Show engines, spend of today and the newest requests, every 2 seconds until Ctrl-C.',
  words: { min: 0, max: 0 },
  options: {
    once: { type: 'boolean', about: 'print once, as without a terminal' },
    org: { type: 'string', about: 'another organization, for platform administrators' },
  },
  run: top,
};
