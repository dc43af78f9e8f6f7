import { spawn } from 'node:child_process';
import { z } from 'zod';
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
  printList,
  printOne,
  queryOf,
  readList,
  textFlag,
  UsageError,
  yesOption,
} from '#edge/cli/shell/shell.ts';
import { findClusterId, readClusterName, readClusterNames } from './clusters.ts';
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

/** Commands over /v1/runs, and the commands that apply a stack. */

const headings = ['RUN', 'STACK', 'CLUSTER', 'NODE', 'OPERATION', 'STATUS', 'CREATED (UTC)', ''];

function row(one: Run, clusters: ReadonlyMap<string, string>): string[] {
  const { id, stack, cluster_id: clusterId, node, operation, status, created_at: created } = one;
  const cluster = clusters.get(clusterId) ?? clusterId;
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
  const clusters = context.json || runs.length === 0 ? new Map() : await readClusterNames(context);
  return printList(context, runs, {
    leaveOut: ['CREATED (UTC)', 'OPERATION', 'NODE', 'CLUSTER'],
    headings,
    row: (one) => row(one, clusters),
    none: 'no run; "headgate stacks apply" makes one',
  });
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
  const access = textFlag(context, 'access');
  const body = {
    cluster_id: await findClusterId(context, cluster),
    ...(node !== null && { node }),
    ...(access !== null && { access }),
    inputs,
  };
  return tell(context, await context.api.call('POST', `${stackPath(stack)}/apply`, { body }));
}

/** Prints a run, at once or once it has ended. @param isDone returns true if the run ended as intended */
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

/** Confirmations of the orders that end something permanently. */
const endings: Readonly<Partial<Record<Order, (run: Run, cluster: string) => Ending>>> = {
  destroy: ({ id, stack, node }, cluster) => ({
    question: `Destroy what ${id} has made?`,
    consequence: `All that the stack "${stack}" has on ${node ?? 'the cluster'} ${node === null ? cluster : `of ${cluster}`} is removed, and its web address stops.`,
    done: 'destroyed',
  }),
  forget: ({ id, stack, overtaken }, cluster) => ({
    question: `Forget what ${id} has ${overtaken === true ? 'left' : 'made'}?`,
    consequence:
      overtaken === true
        ? `What it alone has left is dropped. What later runs of the stack "${stack}" have on ${cluster} stays on record.`
        : `What the stack "${stack}" has on ${cluster} stays there, and nothing here can remove it any more.`,
    done: 'forgotten',
  }),
};

function order(kind: Order): (context: CommandContext) => Promise<number> {
  return async (context) => {
    const path = runPath(context.words[0]);
    const ending = endings[kind];
    if (ending !== undefined) {
      const one = await readRun(context, context.words[0]);
      await confirm(context, ending(one, await readClusterName(context, one.cluster_id)));
    }
    const answer = await context.api.call('POST', `${path}/${kind}`);
    return tell(context, answer, kind === 'cancel' ? isCanceled : hasSucceeded);
  };
}

const opened = z.looseObject({ url: z.string(), expires_at: z.string().nullable() });

/** Prints the link, or opens it in a browser, which uses the link up. */
async function open(context: CommandContext): Promise<number> {
  const answer = await context.api.call('POST', `${runPath(context.words[0])}/open`);
  const { url, expires_at: expires } = parseAnswer(opened, answer);
  if (context.flags['browser'] === true) await openBrowser(url);
  context.out(context.json ? jsonText(answer) : `${cleanLine(url)}\n`);
  if (expires !== null && !context.json) context.err(`it works once, until ${expires.slice(11, 19)} UTC\n`);
  return exitCodes.ok;
}

/** @throws FailedError if this machine has no browser */
function openBrowser(url: string): Promise<void> {
  const program = process.platform === 'darwin' ? 'open' : 'xdg-open';
  // Uses no shell, and passes only web addresses, which no program could mistake for an option or a file.
  if (!/^https?:\/\//.test(url)) throw new FailedError('the gateway answered with an address that is none of the web');
  return new Promise((resolve, reject) => {
    const child = spawn(program, [url], { stdio: 'ignore', detached: true });
    child.on('error', () => reject(new FailedError(`there is no ${program} here: open this by hand: ${url}`)));
    child.on('spawn', () => {
      child.unref();
      resolve();
    });
  });
}

const one = { min: 1, max: 1 } as const;
const wait = { wait: { type: 'boolean', about: 'until it has ended, whose status is the exit code' } } as const;
const clusterOption = { type: 'string', names: 'clusters', about: 'by name or id' } as const;

const applyCommand: Omit<Command, 'name'> = {
  usage:
    'STACK --cluster CLUSTER [--node NODE] [--input NAME=VALUE]... [--inputs FILE.json] [--access public|members] [--wait]',
  summary:
    'Apply a stack to a cluster, by name or id; --wait ends with the run, and with 0 only when it is APPLIED. An input ' +
    'on a command line is seen by others of the machine: secrets go into a file.',
  words: one,
  names: 'stacks',
  options: {
    ...wait,
    cluster: clusterOption,
    node: { type: 'string', about: 'one of its nodes; the whole cluster if not said' },
    inputs: { type: 'string', about: 'a file with a JSON object of inputs' },
    input: { type: 'string', multiple: true, about: 'one input, NAME=VALUE; several times for more' },
    access: {
      type: 'string',
      choices: ['public', 'members'],
      about: 'who may use its web address; everybody if not said',
    },
  },
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
    options: {
      cluster: clusterOption,
      stack: { type: 'string', names: 'stacks', about: 'of one stack' },
      status: { type: 'string', about: 'such as APPLIED or FAILED' },
      limit: { type: 'string', about: `how many; ${runsShown} if not said` },
    },
    run: list,
  },
  {
    name: 'runs show',
    usage: 'RUN',
    summary: 'Show all that is known of a run.',
    words: one,
    names: 'runs',
    options: {},
    run: show,
  },
  {
    name: 'runs logs',
    usage: 'RUN [-f] [--tail LINES]',
    summary: "Print a run's log; -f goes on with what comes until the run has ended.",
    words: one,
    names: 'runs',
    options: {
      follow: { type: 'boolean', short: 'f', about: 'go on with what comes' },
      tail: { type: 'string', about: 'the last lines alone: how many' },
    },
    run: logs,
  },
  {
    name: 'runs open',
    usage: 'RUN [--browser]',
    summary:
      'Print a link to the web address of a run; where that is for members, it works once, within a minute, and signs in.',
    words: one,
    names: 'runs',
    options: { browser: { type: 'boolean', about: 'open it in a browser' } },
    run: open,
  },
  {
    name: 'runs cancel',
    usage: 'RUN [--wait]',
    summary:
      'End a run: at once when it waits, else as soon as Terraform has written its state; --wait ends with 0 only when ' +
      'it is CANCELED.',
    words: one,
    names: 'runs',
    options: wait,
    run: order('cancel'),
  },
  {
    name: 'runs retry',
    usage: 'RUN [--wait]',
    summary: 'Run the same version with the same inputs again.',
    words: one,
    names: 'runs',
    options: wait,
    run: order('retry'),
  },
  {
    name: 'runs destroy',
    usage: 'RUN [--wait] [--yes]',
    summary: 'Remove what a run has made; asks before; --wait ends with 0 only when it is DESTROYED.',
    words: one,
    names: 'runs',
    options: { ...wait, ...yesOption },
    run: order('destroy'),
  },
  {
    name: 'runs forget',
    usage: 'RUN [--yes]',
    summary: 'Drop what is known of what a run has made, and leave it where it is; for platform admins; asks before.',
    words: one,
    names: 'runs',
    options: yesOption,
    run: order('forget'),
  },
];
