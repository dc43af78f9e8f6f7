import {
  cleanLine,
  type Command,
  type CommandContext,
  type CommandOption,
  confirm,
  exitCodes,
  jsonText,
  parseAnswer,
  printList,
  queryOf,
  type Read,
  readList,
  textFlag,
  UsageError,
  yesOption,
} from '#edge/cli/shell/shell.ts';
import { clusterPath, findClusterId } from './find-cluster.ts';

/** Commands over allocations of nodes, which are amended or voided if they are wrong. */

const allocation = async () => (await import('#edge/contract/clusters.ts')).allocationHistorySchema;
type Allocation = Read<typeof allocation>;

const timesText = (from: string | null, to: string | null): string => `${from ?? 'not reported'} to ${to ?? 'now'}`;

function stateOf({ status, amendments }: Allocation): string {
  return status === 'voided' ? 'voided' : amendments.length === 0 ? 'reported' : 'amended';
}

function historyOf({ amendments }: Allocation): string {
  const [last] = amendments.slice(-1);
  if (last === undefined) return '-';
  return `was ${timesText(last.before.allocated_at, last.before.released_at)}: ${last.reason}`;
}

async function list(context: CommandContext): Promise<number> {
  const path = `${clusterPath(await findClusterId(context, context.words[0] ?? ''))}/allocations`;
  const rows = await readList(context, { path, item: allocation, query: queryOf(context, ['node']) });
  return printList(context, rows, {
    headings: ['NODE', 'ALLOCATION', 'STATE', 'FROM', 'TO', 'LAST AMENDMENT'],
    row: (one) => [
      one.node_name ?? one.node_id,
      String(one.generation),
      stateOf(one),
      one.allocated_at ?? '-',
      one.released_at ?? '-',
      historyOf(one),
    ],
    none: 'no allocations; start the hours of a node with "headgate clusters allocate CLUSTER NODE"',
  });
}

/** Returns the path of an allocation, and the fields that both corrections have. @throws UsageError */
async function readCorrection(context: CommandContext) {
  const [clusterText = '', node = '', generation = ''] = context.words;
  if (!/^[1-9]\d{0,8}$/.test(generation)) {
    throw new UsageError(`the allocation must be its number, as "clusters allocations" lists it, not ${generation}`);
  }
  const reason = textFlag(context, 'reason');
  if (reason === null) throw new UsageError('--reason is missing');
  return {
    body: { reason, ...(context.flags['retroactive'] === true && { retroactive: true }) },
    readPath: async () => {
      const cluster = clusterPath(await findClusterId(context, clusterText));
      return `${cluster}/nodes/${encodeURIComponent(node)}/allocations/${generation}`;
    },
  };
}

async function print(context: CommandContext, answer: unknown): Promise<number> {
  const changed = await parseAnswer(allocation, answer);
  const name = cleanLine(changed.node_name ?? changed.node_id);
  const times = timesText(changed.allocated_at, changed.released_at);
  const text = `${name}: allocation ${changed.generation} ${stateOf(changed)}; ${changed.status === 'voided' ? 'was ' : ''}${times}\n`;
  context.out(context.json ? jsonText(answer) : text);
  return exitCodes.ok;
}

async function amend(context: CommandContext): Promise<number> {
  const { body, readPath } = await readCorrection(context);
  const [from, to] = ['from', 'to'].map((name) => textFlag(context, name));
  if (from === null && to === null) throw new UsageError('give --from, --to or both');
  const times = { ...(from && { allocated_at: from }), ...(to && { released_at: to === 'none' ? null : to }) };
  return print(context, await context.api.call('POST', `${await readPath()}/amend`, { body: { ...times, ...body } }));
}

async function voidOne(context: CommandContext): Promise<number> {
  const { body, readPath } = await readCorrection(context);
  const path = await readPath();
  await confirm(context, {
    question: `Void allocation ${context.words[2] ?? ''} of the node "${context.words[1] ?? ''}"?`,
    consequence: 'Its hours and costs leave all reports. It cannot be restored.',
    done: 'voided',
  });
  return print(context, await context.api.call('POST', `${path}/void`, { body }));
}

const options = {
  reason: { type: 'string', about: 'reason, for the history and the audit log' },
  retroactive: { type: 'boolean', about: 'allow changes of costs before this month (UTC)' },
} as const satisfies Record<string, CommandOption>;
const words = { min: 3, max: 3 } as const;

export const allocationCommands: readonly Command[] = [
  {
    name: 'clusters allocations',
    usage: 'CLUSTER [--node NODE]',
    summary: 'List the allocations of nodes, also of removed ones, and what was amended.',
    words: { min: 1, max: 1 },
    names: 'clusters',
    options: { node: { type: 'string', about: 'only this node, by name or id' } },
    run: list,
  },
  {
    name: 'clusters amend',
    usage: 'CLUSTER NODE ALLOCATION [--from TIME] [--to TIME|none] --reason TEXT [--retroactive]',
    summary: 'Correct the times of an allocation; --to none withdraws its release. Reports follow.',
    words,
    names: 'clusters',
    options: {
      from: { type: 'string', about: 'correct start, an RFC 3339 time' },
      to: { type: 'string', about: 'correct end, an RFC 3339 time; none: still allocated' },
      ...options,
    },
    run: amend,
  },
  {
    name: 'clusters void',
    usage: 'CLUSTER NODE ALLOCATION --reason TEXT [--retroactive] [--yes]',
    summary: 'Remove the hours and costs of an allocation that was a mistake; asks first.',
    words,
    names: 'clusters',
    options: { ...options, ...yesOption },
    run: voidOne,
  },
];
