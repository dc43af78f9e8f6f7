import { openBrowser } from '#edge/cli/live/live.ts';
import {
  cleanLine,
  type Command,
  type CommandContext,
  confirm,
  durationFlag,
  type Ending,
  exitCodes,
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
import { findClusterId, readClusterName, readClusterNames } from '#edge/cli/clusters/clusters.ts';
import {
  followLog,
  hasSucceeded,
  isoText,
  printLog,
  readRun,
  type Run,
  run,
  runPath,
  runsPath,
  runText,
  showPlan,
  waitForEnd,
} from './run-follow.ts';
import { runExpiryCommand } from './run-expiry.ts';
import { readInputs } from './run-inputs.ts';
import { stackPath, versionNumber, versionOption } from '#edge/cli/stacks.ts';

/** Commands over /v1/runs, and the commands that apply a stack. */

const headings = [
  'RUN',
  'STACK',
  'VERSION',
  'CLUSTER',
  'NODE',
  'OPERATION',
  'STATUS',
  'PLAN',
  'CREATED (UTC)',
  'EXPIRES (UTC)',
  '',
];

function row(one: Run, clusters: ReadonlyMap<string, string>): string[] {
  const { id, stack, cluster_id: clusterId, node, created_at: created, plan } = one;
  const operation = (one.drift_check_of ?? null) === null ? one.operation : 'drift check';
  const cluster = clusters.get(clusterId) ?? clusterId;
  const [at, expires] = [isoText(created), isoText(one.expires_at ?? '-')];
  const version = String(one.stack_version ?? '-');
  const place = one.queue_position === null ? one.status : `${one.status} (${one.queue_position} in queue)`;
  const status = one.drift?.status === 'drifted' ? `${place} DRIFTED` : place;
  const planned = plan === null ? '-' : `+${plan.add} ~${plan.change} -${plan.remove}`;
  return [id, stack, version, cluster, node ?? '-', operation, status, planned, at, expires, one.failure_code ?? ''];
}

const runsShown = 50;

async function list(context: CommandContext): Promise<number> {
  const limit = textFlag(context, 'limit') ?? String(runsShown);
  if (!/^[1-9]\d{0,5}$/.test(limit)) throw new UsageError('--limit must be a number of runs, 1 or more');
  const query = queryOf(context, ['stack', 'status', 'org=organization_id', 'by=created_by', 'from', 'to']);
  if (context.flags['drift-checks'] === true) query.set('drift_checks', 'true');
  const cluster = textFlag(context, 'cluster');
  if (cluster !== null) query.set('cluster_id', await findClusterId(context, cluster));
  const runs = await readList(context, { path: runsPath, item: run, query, limit: Number(limit) });
  const clusters = context.json || runs.length === 0 ? new Map() : await readClusterNames(context);
  return printList(context, runs, {
    leaveOut: ['EXPIRES (UTC)', 'CREATED (UTC)', 'OPERATION', 'NODE', 'VERSION', 'PLAN', 'CLUSTER'],
    headings,
    row: (one) => row(one, clusters),
    none: 'no runs; create one with "headgate stacks apply"',
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

const planFlags = {
  'plan-only': { type: 'boolean', about: 'make a plan and change nothing; "headgate runs plan" shows it' },
  confirm: { type: 'boolean', about: 'apply the plan only after "headgate runs confirm"' },
} as const;

/** Returns the fields of a run that only plans, or whose plan waits; null for other runs. */
function plannedBy({ flags }: CommandContext): object | null {
  if (flags['plan-only'] === true && flags['confirm'] === true)
    throw new UsageError('--plan-only and --confirm exclude each other');
  if (flags['plan-only'] === true) return { plan_only: true };
  return flags['confirm'] === true ? { auto_apply: false } : null;
}

async function apply(context: CommandContext): Promise<number> {
  const [stack = ''] = context.words;
  const cluster = textFlag(context, 'cluster');
  if (cluster === null) throw new UsageError('--cluster is missing: give the name or id of the cluster');
  const node = textFlag(context, 'node');
  const inputs = await readInputs(context, stack);
  const [access, life] = [textFlag(context, 'access'), durationFlag(context, 'expires-after')];
  const version = textFlag(context, 'stack-version');
  const isUnchecked = context.flags['no-drift-check'] === true;
  const body = {
    cluster_id: await findClusterId(context, cluster),
    ...(node !== null && { node }),
    ...(access !== null && { access }),
    ...(version !== null && { stack_version: versionNumber('--stack-version', version) }),
    ...plannedBy(context),
    ...(life !== null && { expires_after: life }),
    ...(isUnchecked && { check_drift: false }),
    inputs,
  };
  return tell(context, await context.api.call('POST', `${stackPath(stack)}/apply`, { body }));
}

/** Checks a run for drift, or changes whether Headgate does so by itself. */
async function driftCheck(context: CommandContext): Promise<number> {
  const [id, choice] = context.words;
  if (choice === undefined) return tell(context, await context.api.call('POST', `${runPath(id)}/drift-check`));
  if (choice !== 'on' && choice !== 'off') throw new UsageError('after the run, give on, off or nothing');
  const answer = await context.api.call('PATCH', runPath(id), { body: { check_drift: choice === 'on' } });
  return tell(context, answer);
}

/** Prints a run, at once or once it has ended. @param isDone returns true if the run ended as intended */
async function tell(context: CommandContext, answer: unknown, isDone = hasSucceeded): Promise<number> {
  const { json, out, flags } = context;
  const started = await parseAnswer(run, answer);
  if (flags['wait'] !== true) {
    out(json ? jsonText(answer) : runText(started));
    return exitCodes.ok;
  }
  const ended = await waitForEnd(context, started);
  out(json ? jsonText(ended) : runText(ended));
  return isDone(ended) ? exitCodes.ok : exitCodes.failed;
}

type Order = 'confirm' | 'discard' | 'cancel' | 'retry' | 'destroy' | 'forget';

const isApplied = (one: Run): boolean => one.status !== 'PLANNED' && hasSucceeded(one);
const isCanceled = ({ status }: Run): boolean => status === 'CANCELED';

/** Confirmations of the orders that end something permanently. */
const endings: Readonly<Record<'destroy' | 'forget', (run: Run, cluster: string) => Ending>> = {
  destroy: ({ id, stack, node }, cluster) => ({
    question: `Destroy the resources of ${id}?`,
    consequence: `All resources of the stack "${stack}" on ${node ?? 'the cluster'} ${node === null ? cluster : `of ${cluster}`} are removed, and its web address stops.`,
    done: 'destroyed',
  }),
  forget: ({ id, stack, overtaken }, cluster) => ({
    question: `Forget the ${overtaken === true ? 'leftover ' : ''}resources of ${id}?`,
    consequence:
      overtaken === true
        ? `Only the record of its own leftovers is dropped. Resources of later runs of the stack "${stack}" on ${cluster} stay on record.`
        : `The resources of the stack "${stack}" stay on ${cluster}, and Headgate can no longer remove them.`,
    done: 'forgotten',
  }),
};

/** Asks before something is ended permanently. A plan ends nothing; the confirmation of a plan to destroy does. */
async function confirmEnding(context: CommandContext, kind: 'confirm' | 'destroy' | 'forget'): Promise<void> {
  const one = await readRun(context, context.words[0]);
  if (kind === 'confirm' && one.operation !== 'destroy') return;
  const ending = endings[kind === 'confirm' ? 'destroy' : kind];
  await confirm(context, ending(one, await readClusterName(context, one.cluster_id)));
}

function order(kind: Order): (context: CommandContext) => Promise<number> {
  return async (context) => {
    const body = plannedBy(context);
    const isAsked = kind === 'forget' || kind === 'confirm' || (kind === 'destroy' && body === null);
    if (isAsked) await confirmEnding(context, kind);
    const path = `${runPath(context.words[0])}/${kind}`;
    const answer = await context.api.call('POST', path, body === null ? {} : { body });
    return tell(context, answer, kind === 'cancel' ? isCanceled : kind === 'confirm' ? isApplied : hasSucceeded);
  };
}

const opened = async () => (await import('#edge/contract/runs.ts')).openedRunSchema;

/** Prints the link, or opens it in a browser, which uses the link up. */
async function open(context: CommandContext): Promise<number> {
  const answer = await context.api.call('POST', `${runPath(context.words[0])}/open`);
  const { url, expires_at: expires } = await parseAnswer(opened, answer);
  if (context.flags['browser'] === true) await openBrowser(url);
  context.out(context.json ? jsonText(answer) : `${cleanLine(url)}\n`);
  if (expires !== null && !context.json) context.err(`the link works once, until ${expires.slice(11, 19)} UTC\n`);
  return exitCodes.ok;
}

const one = { min: 1, max: 1 } as const;
const wait = { wait: { type: 'boolean', about: 'wait until the run ends; the exit code is its result' } } as const;
const clusterOption = { type: 'string', names: 'clusters', about: 'by name or id' } as const;

const applyCommand: Omit<Command, 'name'> = {
  usage:
    'STACK --cluster CLUSTER [--node NODE] [--stack-version N] [--input NAME=VALUE]... [--inputs FILE.json] [--access public|members] [--plan-only|--confirm] [--expires-after 3d] [--no-drift-check] [--wait]',
  summary:
    'Apply a stack to a cluster, by name or id; with --wait, the exit code is 0 only if the run succeeds. Other users of ' +
    'the machine can see inputs on a command line: put secrets into a file.',
  words: one,
  names: 'stacks',
  options: {
    ...wait,
    cluster: clusterOption,
    node: { type: 'string', about: 'one node of the cluster; default: the whole cluster' },
    'stack-version': versionOption,
    inputs: { type: 'string', about: 'a file with a JSON object of inputs' },
    input: { type: 'string', multiple: true, about: 'one input, NAME=VALUE; may be repeated' },
    access: {
      type: 'string',
      choices: ['public', 'members'],
      about: 'who may use its web address; default: public',
    },
    ...planFlags,
    'expires-after': { type: 'string', about: 'time from the apply until Headgate destroys the resources: 8h, 3d' },
    'no-drift-check': { type: 'boolean', about: 'Headgate does not check the resources for drift by itself' },
  },
  run: apply,
};

export const runCommands: readonly Command[] = [
  { name: 'stacks apply', ...applyCommand },
  { name: 'runs apply', ...applyCommand },
  {
    name: 'runs ls',
    usage:
      '[--cluster CLUSTER] [--stack NAME] [--status STATUS,…] [--by USER|KEY] [--from TIME] [--to TIME] [--drift-checks] [--org ID] [--limit RUNS]',
    summary: `List runs, newest first; default: ${runsShown} runs.`,
    words: { min: 0, max: 0 },
    options: {
      cluster: clusterOption,
      stack: { type: 'string', names: 'stacks', about: 'only this stack' },
      status: { type: 'string', about: 'one or more, separated by commas, such as PENDING,FAILED' },
      by: { type: 'string', about: 'only runs of a user or an API key: user_… or key_…' },
      from: { type: 'string', about: 'requested at or after a date (midnight UTC) or time' },
      to: { type: 'string', about: 'requested before a date or time' },
      'drift-checks': { type: 'boolean', about: 'only drift checks, which are not listed otherwise' },
      org: { type: 'string', about: 'only this organization; default for platform administrators: all' },
      limit: { type: 'string', about: `number of runs; default: ${runsShown}` },
    },
    run: list,
  },
  {
    name: 'runs show',
    usage: 'RUN',
    summary: 'Show a run.',
    words: one,
    names: 'runs',
    options: {},
    run: show,
  },
  {
    name: 'runs logs',
    usage: 'RUN [-f] [--tail LINES]',
    summary: "Print a run's log; -f prints new lines until the run ends.",
    words: one,
    names: 'runs',
    options: {
      follow: { type: 'boolean', short: 'f', about: 'print new lines until the run ends' },
      tail: { type: 'string', about: 'number of lines from the end of the log; default: all' },
    },
    run: logs,
  },
  {
    name: 'runs plan',
    usage: 'RUN',
    summary: 'Show what the plan of a run changes, resource by resource.',
    words: one,
    names: 'runs',
    options: {},
    run: showPlan,
  },
  {
    name: 'runs confirm',
    usage: 'RUN [--wait] [--yes]',
    summary:
      'Apply the plan of a run that waits for it; asks first if it is a plan to destroy; with --wait, the exit code is 0 ' +
      'only if the run succeeds.',
    words: one,
    names: 'runs',
    options: { ...wait, ...yesOption },
    run: order('confirm'),
  },
  {
    name: 'runs discard',
    usage: 'RUN',
    summary: 'Discard the plan of a run; nothing is changed.',
    words: one,
    names: 'runs',
    options: {},
    run: order('discard'),
  },
  runExpiryCommand,
  {
    name: 'runs drift-check',
    usage: 'RUN [on|off] [--wait]',
    summary:
      'Check now whether the resources of an applied run were changed or deleted outside of Headgate; on and off change ' +
      'whether Headgate checks by itself.',
    words: { min: 1, max: 2 },
    names: 'runs',
    options: wait,
    run: driftCheck,
  },
  {
    name: 'runs open',
    usage: 'RUN [--browser]',
    summary: 'Print a link to the web address of a run; a link for members works once, within a minute, and signs in.',
    words: one,
    names: 'runs',
    options: { browser: { type: 'boolean', about: 'open it in a browser' } },
    run: open,
  },
  {
    name: 'runs cancel',
    usage: 'RUN [--wait]',
    summary:
      'Cancel a run: a pending run immediately, an active run as soon as Terraform has written its state; with --wait, the ' +
      'exit code is 0 only if the run is CANCELED.',
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
    usage: 'RUN [--plan-only|--confirm] [--wait] [--yes]',
    summary:
      'Destroy the resources of a run; asks first, unless only a plan is made; with --wait, the exit code is 0 only if ' +
      'the run is DESTROYED, or its plan is ready.',
    words: one,
    names: 'runs',
    options: { ...wait, ...planFlags, ...yesOption },
    run: order('destroy'),
  },
  {
    name: 'runs forget',
    usage: 'RUN [--yes]',
    summary: 'Forget the resources of a run, which stay where they are; for platform administrators; asks first.',
    words: one,
    names: 'runs',
    options: yesOption,
    run: order('forget'),
  },
];
