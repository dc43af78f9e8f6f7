import { setTimeout as sleep } from 'node:timers/promises';
import {
  cleanLine,
  type Command,
  type CommandContext,
  exitCodes,
  FailedError,
  jsonText,
  parseAnswer,
  printOne,
  type Read,
  renderTable,
  textFlag,
  timeText,
  UsageError,
} from '#edge/cli/shell/shell.ts';
import {
  commandText,
  type Engine,
  engine,
  enginePath,
  enginesPath,
  readyCount,
  remark,
  versionsText,
} from './engine-answer.ts';
import { pruneCommand } from './engine-prune.ts';
import { requestCommands } from './engine-requests.ts';
import { operatorCommand } from './engine-operator.ts';

/** Commands over /v1/admin/engines. Fields that a newer gateway adds to its answers are ignored. */

const engineList = async () => (await import('#edge/contract/engines.ts')).engineListSchema;
const reloaded = async () => (await import('#edge/contract/engines.ts')).engineReloadSchema;
const logLine = async () => (await import('#edge/contract/engines.ts')).engineLogLineSchema;
const logList = async () => (await import('#edge/contract/engines.ts')).engineLogSchema;

function row(one: Engine): string[] {
  const { running, waiting } = one.queue;
  const where = one.hosts.join(',') || '-';
  return [
    one.id,
    one.state,
    versionsText(one),
    `${readyCount(one)}/${one.replicas_max}`,
    String(running),
    String(waiting),
    where,
    remark(one),
  ];
}

const headings = ['ENGINE', 'STATE', 'VERSION', 'READY', 'RUNNING', 'WAITING', 'HOST', ''];

async function list({ api, json, out, err, terminal }: CommandContext): Promise<number> {
  const answer = await api.call('GET', enginesPath);
  const { data, files, differences, pending_prices: pending } = await parseAnswer(engineList, answer);
  out(json ? jsonText(answer) : renderTable(headings, data.map(row), terminal.columns));
  if (!json && files !== undefined) err(fileProblemsText(files));
  if (!json && (differences ?? []).length > 0) err(differencesText(differences ?? []));
  if (!json && (pending ?? []).length > 0) {
    const models = (pending ?? []).map(cleanLine).join(', ');
    err(
      `Prices in the files of this gateway that are not in effect, since other gateways have other prices: ${models}\n`,
    );
  }
  return exitCodes.ok;
}

type Files = NonNullable<Read<typeof engineList>['files']>;

/** Describes engine files and engines of runs that are not in effect; empty if there are none. */
function fileProblemsText({ refused, left_out: leftOut }: Files): string {
  const lines = (problems: readonly string[]): string =>
    problems.map((problem) => `  ${cleanLine(problem)}\n`).join('');
  const rejected =
    refused === null
      ? ''
      : `The engine files were rejected at ${timeText(refused.at)} UTC; the engines still use the files before:\n${lines(refused.problems)}`;
  return leftOut.length === 0 ? rejected : `${rejected}Engines that runs declare are left out:\n${lines(leftOut)}`;
}

type Differences = NonNullable<Read<typeof engineList>['differences']>;

function differencesText(differences: Differences): string {
  const isLate = differences.some(({ overdue }) => overdue);
  const head = `The gateways differ${isLate ? ' for longer than a rollout takes' : ''}; give all gateways the same values:`;
  const lines = differences.map(({ kind, name, values }) => {
    const texts = values.map(({ value, gateways }) => `${value ?? 'missing'} on ${gateways.join(', ')}`);
    return cleanLine(`${kind} ${name}: ${texts.join('; ')}`);
  });
  return `${head}\n${lines.map((line) => `  ${line}\n`).join('')}`;
}

const show = (context: CommandContext): Promise<number> => printOne(context, enginePath(context.words[0]), engine);

async function reload({ api, json, out }: CommandContext): Promise<number> {
  const answer = await api.call('POST', `${enginesPath}/reload`);
  const changes = await parseAnswer(reloaded, answer);
  const lines = (['added', 'changed', 'removed'] as const).flatMap((kind) =>
    changes[kind].map((id) => `${kind} ${id}\n`),
  );
  out(json ? jsonText(answer) : lines.length === 0 ? 'no changes\n' : lines.join(''));
  return exitCodes.ok;
}

function logsPath(context: CommandContext, follow: boolean, tail: number): string {
  const query = new URLSearchParams({ tail: String(tail) });
  if (follow) query.set('follow', '1');
  const one = textFlag(context, 'replica');
  if (one !== null) query.set('replica', one);
  return `${enginePath(context.words[0])}/logs?${query.toString()}`;
}

/** Creates a printer of log lines. A replica's name stands before its lines once a second replica has printed lines. */
function createLogPrinter({ json, out }: CommandContext): (line: Read<typeof logLine>) => void {
  const seen = new Set<string | null>();
  return (line) => {
    seen.add(line.replica);
    if (json) out(`${JSON.stringify({ replica: line.replica, line: line.line })}\n`);
    else out(`${seen.size > 1 ? `${cleanLine(line.replica ?? '-')} | ` : ''}${cleanLine(line.line)}\n`);
  };
}

async function parseEvent(data: string): Promise<Read<typeof logLine>> {
  try {
    return await parseAnswer(logLine, JSON.parse(data));
  } catch (error) {
    if (error instanceof FailedError) throw error;
    throw new FailedError('the gateway sent a log line that is not JSON');
  }
}

const reconnectMs = 1000;

async function logs(context: CommandContext): Promise<number> {
  const tailText = textFlag(context, 'tail') ?? '200';
  if (!/^\d{1,6}$/.test(tailText)) throw new UsageError('--tail must be a number of lines');
  const { driver, id } = await parseAnswer(engine, await context.api.call('GET', enginePath(context.words[0])));
  if (driver === 'external') {
    context.err(`${id} has no log here, because it is external; "${commandText('show', id)}" shows its state\n`);
    return exitCodes.ok;
  }
  const print = createLogPrinter(context);
  if (context.flags['follow'] !== true) {
    const answer = await context.api.call('GET', logsPath(context, false, Number(tailText)));
    for (const line of (await parseAnswer(logList, answer)).data) print(line);
    return exitCodes.ok;
  }
  let tail = Number(tailText);
  // The gateway ends the stream when it stops, or when the replica ends: then the lines of the next replica follow.
  for (;;) {
    let received = 0;
    for await (const { data } of context.api.events(logsPath(context, true, tail))) {
      received += 1;
      print(await parseEvent(data));
    }
    if (received === 0) await sleep(reconnectMs);
    tail = 0;
  }
}

const hostList = async () => (await import('#edge/contract/hosts.ts')).hostListSchema;

type Host = Read<typeof hostList>['data'][number];

/** Formats free and total memory, in GiB, that processes may use together. */
function memoryCell({ memory_bytes: bytes, replicas }: Host): string {
  if (bytes === undefined || bytes === null) return '-';
  const taken = replicas.reduce((sum, one) => sum + (one.memory_bytes ?? 0), 0);
  const gib = (amount: number): string => String(Math.round((amount / 2 ** 30) * 10) / 10);
  return `${gib(bytes - taken)}/${gib(bytes)}`;
}

function orphanText({ name, ended_by: command }: Host['strangers'][number]): string {
  return command === undefined || command === null ? name : `${name}, remove it there with "${command}"`;
}

async function listHosts({ api, json, out, terminal }: CommandContext): Promise<number> {
  const answer = await api.call('GET', '/v1/admin/hosts');
  const rows = (await parseAnswer(hostList, answer)).data.map((host) => [
    host.name,
    host.reachable ? 'reachable' : 'unreachable',
    `${host.gpus.filter(({ used_by: user }) => (user ?? null) === null).length}/${host.gpus.length}`,
    memoryCell(host),
    String(host.replicas.length),
    host.pools.join(',') || '-',
    [
      ...(host.trouble ? [host.trouble] : []),
      ...(host.strangers.length === 0 ? [] : [`orphaned: ${host.strangers.map(orphanText).join('; ')}`]),
    ].join('; '),
  ]);
  const titles = ['HOST', 'STATE', 'FREE GPUS', 'FREE GIB', 'REPLICAS', 'POOLS', ''];
  out(json ? jsonText(answer) : renderTable(titles, rows, terminal.columns));
  return exitCodes.ok;
}

export const engineCommands: readonly Command[] = [
  {
    name: 'engines ls',
    usage: '',
    summary: 'List the engines: state, version of vLLM, replicas, hosts, waiting requests, last failure.',
    words: { min: 0, max: 0 },
    options: {},
    run: list,
  },
  {
    name: 'engines show',
    usage: 'ID',
    summary: 'Show an engine.',
    words: { min: 1, max: 1 },
    names: 'engines',
    options: {},
    run: show,
  },
  operatorCommand('start', 'Start an engine, also one that a command stopped, and wait until it is ready.'),
  operatorCommand(
    'stop',
    'Stop an engine and wait for its end; it stays stopped (state held) until start, restart or reset. Asks first if requests are running.',
  ),
  operatorCommand(
    'restart',
    'Replace the running replicas of an engine, and wait until the new ones serve; not for external engines.',
  ),
  operatorCommand('reset', 'Clear the failed starts of an engine, so that requests start it again.'),
  {
    name: 'engines logs',
    usage: 'ID [-f] [--tail LINES] [--replica REPLICA]',
    summary: "Print the last lines of an engine's output; -f prints new lines as they come.",
    words: { min: 1, max: 1 },
    names: 'engines',
    options: {
      follow: { type: 'boolean', short: 'f', about: 'print new lines as they come' },
      tail: { type: 'string', about: 'number of lines; default: 200' },
      replica: { type: 'string', about: 'only this replica' },
    },
    run: logs,
  },
  {
    name: 'engines reload',
    usage: '',
    summary: 'Reload the engine files on all gateways; if a file has an error, nothing changes.',
    words: { min: 0, max: 0 },
    options: {},
    run: reload,
  },
  ...requestCommands,
  pruneCommand,
  {
    name: 'hosts ls',
    usage: '',
    summary: 'List the hosts: state, free GPUs and memory, replicas, orphaned containers and processes.',
    words: { min: 0, max: 0 },
    options: {},
    run: listHosts,
  },
];
