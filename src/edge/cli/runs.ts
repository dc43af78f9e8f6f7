import { jsonText, parseAnswer, printList, printOne, queryOf, readList } from './answers.ts';
import { findClusterId } from './clusters.ts';
import { type Command, type CommandContext, exitCodes, textFlag } from './command.ts';
import { UsageError } from './errors.ts';
import {
  followLog,
  hasSucceeded,
  printLog,
  readRun,
  type Run,
  run,
  runPath,
  runsPath,
  runText,
  waitForEnd,
} from './run-follow.ts';
import { readInputs } from './run-inputs.ts';
import { stackPath } from './stacks.ts';

/** Commands over /v1/runs, and what makes one of a stack. */

const headings = ['RUN', 'STACK', 'CLUSTER', 'NODE', 'OPERATION', 'STATUS', 'CREATED (UTC)', ''];

function row(one: Run): string[] {
  const { id, stack, cluster_id: cluster, node, operation, status, created_at: created } = one;
  const at = created.slice(0, 'YYYY-MM-DDTHH:mm:ss'.length).replace('T', ' ');
  return [id, stack, cluster, node ?? '-', operation, status, at, one.failure_code ?? ''];
}

const runsShown = 50;

async function list(context: CommandContext): Promise<number> {
  const limit = textFlag(context, 'limit') ?? String(runsShown);
  if (!/^[1-9]\d{0,5}$/.test(limit)) throw new UsageError('--limit must be a number of runs, 1 or more');
  const query = queryOf(context, ['stack', 'status']);
  const cluster = textFlag(context, 'cluster');
  if (cluster !== null) query.set('cluster_id', await findClusterId(context, cluster));
  const runs = await readList(context, { path: runsPath, item: run, query, limit: Number(limit) });
  return printList(context, runs, { headings, row });
}

const show = (context: CommandContext): Promise<number> => printOne(context, runPath(context.words[0]), run);

async function logs(context: CommandContext): Promise<number> {
  const tail = textFlag(context, 'tail');
  if (tail !== null && !/^\d{1,6}$/.test(tail)) throw new UsageError('--tail must be a number of lines');
  const { id, log_lines: lines } = await readRun(context, context.words[0]);
  const after = tail === null ? 0 : Math.max(0, lines - Number(tail));
  if (context.flags['follow'] !== true) {
    await printLog(context, id, after);
    return exitCodes.ok;
  }
  await followLog(context, id, after);
  if (!context.json) context.err(runText(await readRun(context, id)));
  return exitCodes.ok;
}

async function apply(context: CommandContext): Promise<number> {
  const [stack = ''] = context.words;
  const cluster = textFlag(context, 'cluster');
  if (cluster === null) throw new UsageError('--cluster is missing: it names the cluster, by name or id');
  const node = textFlag(context, 'node');
  const inputs = await readInputs(context, stack);
  const body = { cluster_id: await findClusterId(context, cluster), ...(node !== null && { node }), inputs };
  return tell(context, await context.api.call('POST', `${stackPath(stack)}/apply`, { body }));
}

/** Says what became of a run, at once or when it has ended. @param isDone whether it ended as it was to */
async function tell(context: CommandContext, answer: unknown, isDone = hasSucceeded): Promise<number> {
  const { json, out, flags } = context;
  const started = parseAnswer(run, answer);
  if (flags['wait'] !== true) {
    out(json ? jsonText(answer) : runText(started));
    return exitCodes.ok;
  }
  const ended = await waitForEnd(context, started);
  out(json ? jsonText(ended) : runText(ended));
  return isDone(ended) ? exitCodes.ok : exitCodes.failed;
}

type Order = 'cancel' | 'retry' | 'destroy' | 'forget';

const isCanceled = ({ status }: Run): boolean => status === 'CANCELED';

function order(kind: Order): (context: CommandContext) => Promise<number> {
  return async (context) => {
    const answer = await context.api.call('POST', `${runPath(context.words[0])}/${kind}`);
    return tell(context, answer, kind === 'cancel' ? isCanceled : hasSucceeded);
  };
}

const text = { type: 'string' } as const;
const one = { min: 1, max: 1 } as const;
const wait = { wait: { type: 'boolean' } } as const;

const applyCommand: Omit<Command, 'name'> = {
  usage: 'STACK --cluster CLUSTER [--node NODE] [--input NAME=VALUE]... [--inputs FILE.json] [--wait]',
  summary:
    'Apply a stack to a cluster, by name or id; --wait ends with the run, and with 0 only when it is APPLIED. An input ' +
    'on a command line is seen by others of the machine: secrets go into a file.',
  words: one,
  options: { ...wait, cluster: text, node: text, inputs: text, input: { type: 'string', multiple: true } },
  run: apply,
};

export const runCommands: readonly Command[] = [
  { name: 'stacks apply', ...applyCommand },
  { name: 'runs apply', ...applyCommand },
  {
    name: 'runs ls',
    usage: '[--cluster CLUSTER] [--stack NAME] [--status STATUS] [--limit RUNS]',
    summary: `List runs, the newest first; ${runsShown} of them, where no other number is asked for.`,
    words: { min: 0, max: 0 },
    options: { cluster: text, stack: text, status: text, limit: text },
    run: list,
  },
  { name: 'runs show', usage: 'RUN', summary: 'Show all that is known of a run.', words: one, options: {}, run: show },
  {
    name: 'runs logs',
    usage: 'RUN [-f] [--tail LINES]',
    summary: "Print a run's log; -f goes on with what comes until the run has ended.",
    words: one,
    options: { follow: { type: 'boolean', short: 'f' }, tail: text },
    run: logs,
  },
  {
    name: 'runs cancel',
    usage: 'RUN [--wait]',
    summary:
      'End a run: at once when it waits, else as soon as Terraform has written its state; --wait ends with 0 only when ' +
      'it is CANCELED.',
    words: one,
    options: wait,
    run: order('cancel'),
  },
  {
    name: 'runs retry',
    usage: 'RUN [--wait]',
    summary: 'Run the same version with the same inputs again.',
    words: one,
    options: wait,
    run: order('retry'),
  },
  {
    name: 'runs destroy',
    usage: 'RUN [--wait]',
    summary: 'Remove what a run has made; --wait ends with 0 only when it is DESTROYED.',
    words: one,
    options: wait,
    run: order('destroy'),
  },
  {
    name: 'runs forget',
    usage: 'RUN',
    summary: 'Drop what is known of what a run has made, and leave it where it is; for platform admins.',
    words: one,
    options: {},
    run: order('forget'),
  },
];
