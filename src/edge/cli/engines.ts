import { setTimeout as sleep } from 'node:timers/promises';
import { stringify } from 'yaml';
import { z } from 'zod';
import { type Command, type CommandContext, exitCodes, textFlag } from './command.ts';
import { FailedError, UsageError } from './errors.ts';
import { cleanLine, renderTable } from './table.ts';

/** Commands over /v1/admin/engines. Fields that a newer gateway adds to its answers are ignored. */

const replica = z.looseObject({
  id: z.string(),
  state: z.string(),
  host: z.string().nullish(),
  progress: z.string().nullish(),
  healthy: z.boolean().nullish(),
});

const engine = z.looseObject({
  id: z.string(),
  state: z.string(),
  replicas: z.array(replica).default([]),
  hosts: z.array(z.string()).default([]),
  replicas_max: z.number(),
  queue: z.looseObject({ running: z.number(), waiting: z.number() }),
  file: z.string().nullish(),
  last_failure: z
    .looseObject({ message: z.string(), detail: z.string().nullish(), retry_at: z.number().nullish() })
    .nullish(),
  rollout: z.looseObject({ state: z.string(), message: z.string().nullish() }).nullish(),
});
type Engine = z.output<typeof engine>;

const engineList = z.object({ data: z.array(engine) });
const reloaded = z.object({
  added: z.array(z.string()),
  changed: z.array(z.string()),
  removed: z.array(z.string()),
});
const logLine = z.object({ replica: z.string().nullable(), line: z.string() });
const logList = z.object({ data: z.array(logLine) });

const enginesPath = '/v1/admin/engines';

const enginePath = (id: string | undefined): string => `${enginesPath}/${encodeURIComponent(id ?? '')}`;

/** @throws FailedError where the gateway is of another version than this command */
function parseAnswer<Schema extends z.ZodType>(schema: Schema, answer: unknown): z.output<Schema> {
  const parsed = schema.safeParse(answer);
  if (parsed.success) return parsed.data;
  throw new FailedError('the gateway answers in a form that this command does not know: their versions differ');
}

const jsonText = (value: unknown): string => `${JSON.stringify(value, null, 2)}\n`;

/** What is wrong with an engine or under way, and the command that mends it where there is one. */
function remark(one: Engine): string {
  const { id, state, file, last_failure: failure, rollout, replicas } = one;
  if (state === 'held') return `stopped by a command; to start it: ${commandText('start', id)}`;
  if (rollout?.state === 'refused') {
    const mended = `mend ${file ?? 'its file'}, then: ${commandText('reload')}`;
    return sentences(`new version refused: ${rollout.message ?? ''}`, mended);
  }
  if (failure !== null && failure !== undefined) {
    const text = sentences(failure.message, shortened(failure.detail ?? ''));
    const isGivenUp = state === 'failed' && (failure.retry_at ?? null) === null;
    return isGivenUp ? sentences(text, `when it is mended: ${commandText('reset', id)}`) : text;
  }
  const silent = replicas.filter(({ state: itsState, healthy }) => itsState === 'ready' && healthy === false);
  if (silent.length > 0) return `does not answer: ${silent.map(({ id: name, host }) => host ?? name).join(', ')}`;
  return replicas.map((replica) => replica.progress ?? null).find((text) => text !== null) ?? '';
}

function sentences(...parts: readonly string[]): string {
  return parts
    .filter((part) => part !== '')
    .join('; ')
    .replaceAll('.;', ';');
}

const detailCharsMax = 160;

/** `engines show` has all of it. */
function shortened(text: string): string {
  return text.length <= detailCharsMax ? text : `${text.slice(0, detailCharsMax - 1).trimEnd()}…`;
}

/** As a shell takes it. */
function commandText(command: string, id: string | null = null): string {
  const word = id === null || /^[\w./:-]+$/.test(id) ? (id ?? '') : `'${id}'`;
  return `headgate engines ${command} ${word}`.trim();
}

function row(one: Engine): string[] {
  const ready = one.replicas.filter(({ state, healthy }) => state === 'ready' && healthy !== false).length;
  const { running, waiting } = one.queue;
  const where = one.hosts.join(',') || '-';
  return [one.id, one.state, `${ready}/${one.replicas_max}`, String(running), String(waiting), where, remark(one)];
}

const headings = ['ENGINE', 'STATE', 'READY', 'RUNNING', 'WAITING', 'HOST', ''];

async function list({ api, json, out }: CommandContext): Promise<number> {
  const answer = await api.call('GET', enginesPath);
  const { data } = parseAnswer(engineList, answer);
  out(json ? jsonText(answer) : renderTable(headings, data.map(row)));
  return exitCodes.ok;
}

async function show({ api, json, out, words }: CommandContext): Promise<number> {
  const answer = await api.call('GET', enginePath(words[0]));
  parseAnswer(engine, answer);
  out(json ? jsonText(answer) : `${stringify(answer).trimEnd().split('\n').map(cleanLine).join('\n')}\n`);
  return exitCodes.ok;
}

function operatorCommand(kind: 'start' | 'stop' | 'restart' | 'reset', summary: string): Command {
  return {
    name: `engines ${kind}`,
    usage: 'ID',
    summary,
    words: { min: 1, max: 1 },
    options: {},
    async run({ api, json, out, words }) {
      const answer = await api.call('POST', `${enginePath(words[0])}/${kind}`);
      const { id, state } = parseAnswer(engine, answer);
      out(json ? jsonText(answer) : `${id}: ${state}\n`);
      return exitCodes.ok;
    },
  };
}

async function reload({ api, json, out }: CommandContext): Promise<number> {
  const answer = await api.call('POST', `${enginesPath}/reload`);
  const changes = parseAnswer(reloaded, answer);
  const lines = (['added', 'changed', 'removed'] as const).flatMap((kind) =>
    changes[kind].map((id) => `${kind} ${id}\n`),
  );
  out(json ? jsonText(answer) : lines.length === 0 ? 'nothing has changed\n' : lines.join(''));
  return exitCodes.ok;
}

function logsPath(context: CommandContext, follow: boolean, tail: number): string {
  const query = new URLSearchParams({ tail: String(tail) });
  if (follow) query.set('follow', '1');
  const one = textFlag(context, 'replica');
  if (one !== null) query.set('replica', one);
  return `${enginePath(context.words[0])}/logs?${query.toString()}`;
}

/** A replica's name stands before its lines once a second one has spoken. */
function createLogPrinter({ json, out }: CommandContext): (line: z.output<typeof logLine>) => void {
  const seen = new Set<string | null>();
  return (line) => {
    seen.add(line.replica);
    if (json) out(`${JSON.stringify({ replica: line.replica, line: line.line })}\n`);
    else out(`${seen.size > 1 ? `${cleanLine(line.replica ?? '-')} | ` : ''}${cleanLine(line.line)}\n`);
  };
}

function parseEvent(data: string): z.output<typeof logLine> {
  try {
    return parseAnswer(logLine, JSON.parse(data));
  } catch (error) {
    if (error instanceof FailedError) throw error;
    throw new FailedError('the gateway sent a line of the log that is not JSON');
  }
}

const reconnectMs = 1000;

async function logs(context: CommandContext): Promise<number> {
  const tailText = textFlag(context, 'tail') ?? '200';
  if (!/^\d{1,6}$/.test(tailText)) throw new UsageError('--tail must be a number of lines');
  const print = createLogPrinter(context);
  if (context.flags['follow'] !== true) {
    const answer = await context.api.call('GET', logsPath(context, false, Number(tailText)));
    for (const line of parseAnswer(logList, answer).data) print(line);
    return exitCodes.ok;
  }
  let tail = Number(tailText);
  // The gateway ends the stream when it stops, or when the replica is gone: the next one's lines follow.
  for (;;) {
    let received = 0;
    for await (const data of context.api.events(logsPath(context, true, tail))) {
      received += 1;
      print(parseEvent(data));
    }
    if (received === 0) await sleep(reconnectMs);
    tail = 0;
  }
}

const gpu = z.looseObject({ id: z.string(), used_by: z.looseObject({}).nullish() });
const hostList = z.object({
  data: z.array(
    z.looseObject({
      name: z.string(),
      reachable: z.boolean(),
      trouble: z.string().nullish(),
      pools: z.array(z.string()),
      gpus: z.array(gpu),
      memory_bytes: z.number().nullish(),
      replicas: z.array(z.looseObject({ memory_bytes: z.number().nullish() })),
      strangers: z.array(z.looseObject({ name: z.string(), ended_by: z.string().nullish() })),
    }),
  ),
});

type Host = z.output<typeof hostList>['data'][number];

/** Free and all, GiB, of what processes may take together. */
function memoryCell({ memory_bytes: bytes, replicas }: Host): string {
  if (bytes === undefined || bytes === null) return '-';
  const taken = replicas.reduce((sum, one) => sum + (one.memory_bytes ?? 0), 0);
  const gib = (amount: number): string => String(Math.round((amount / 2 ** 30) * 10) / 10);
  return `${gib(bytes - taken)}/${gib(bytes)}`;
}

function orphanText({ name, ended_by: command }: Host['strangers'][number]): string {
  return command === undefined || command === null ? name : `${name}, ended there by "${command}"`;
}

async function listHosts({ api, json, out }: CommandContext): Promise<number> {
  const answer = await api.call('GET', '/v1/admin/hosts');
  const rows = parseAnswer(hostList, answer).data.map((host) => [
    host.name,
    host.reachable ? 'reachable' : 'unreachable',
    `${host.gpus.filter(({ used_by: user }) => (user ?? null) === null).length}/${host.gpus.length}`,
    memoryCell(host),
    String(host.replicas.length),
    host.pools.join(',') || '-',
    [
      ...(host.trouble ? [host.trouble] : []),
      ...(host.strangers.length === 0 ? [] : [`not known: ${host.strangers.map(orphanText).join('; ')}`]),
    ].join('; '),
  ]);
  out(json ? jsonText(answer) : renderTable(['HOST', 'STATE', 'FREE GPUS', 'FREE GIB', 'REPLICAS', 'POOLS', ''], rows));
  return exitCodes.ok;
}

export const engineCommands: readonly Command[] = [
  {
    name: 'engines ls',
    usage: '',
    summary: 'List the engines: state, replicas, where they run, requests that wait, last failure.',
    words: { min: 0, max: 0 },
    options: {},
    run: list,
  },
  {
    name: 'engines show',
    usage: 'ID',
    summary: 'Show all that is known of an engine.',
    words: { min: 1, max: 1 },
    options: {},
    run: show,
  },
  operatorCommand('start', 'Start an engine, also one that was stopped by hand.'),
  operatorCommand('stop', 'Stop an engine; it stays stopped until start, restart or reset.'),
  operatorCommand('restart', 'Start new replicas in place of the running ones.'),
  operatorCommand('reset', 'Forget the failed starts of an engine, so that requests start it again.'),
  {
    name: 'engines logs',
    usage: 'ID [-f] [--tail LINES] [--replica REPLICA]',
    summary: "Print the last lines of an engine's output; -f goes on with what comes.",
    words: { min: 1, max: 1 },
    options: {
      follow: { type: 'boolean', short: 'f' },
      tail: { type: 'string' },
      replica: { type: 'string' },
    },
    run: logs,
  },
  {
    name: 'engines reload',
    usage: '',
    summary: 'Make the gateway read its engine files again; a file with an error changes nothing.',
    words: { min: 0, max: 0 },
    options: {},
    run: reload,
  },
  {
    name: 'hosts ls',
    usage: '',
    summary: 'List the hosts: whether they answer, what is free, replicas, and what no engine file knows.',
    words: { min: 0, max: 0 },
    options: {},
    run: listHosts,
  },
];
