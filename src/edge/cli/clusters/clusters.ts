import {
  cleanLine,
  type Command,
  type CommandContext,
  confirm,
  exitCodes,
  FailedError,
  jsonText,
  parseAnswer,
  printList,
  printOne,
  queryOf,
  type Read,
  readList,
  loadYaml,
  readText,
  textFlag,
  textFlags,
  UsageError,
  yesOption,
} from '#edge/cli/shell/shell.ts';
import { allocationCommands } from './allocations.ts';
import { clusterPath, clustersPath, findClusterId, summary, unpricedText } from './find-cluster.ts';
import { readLabels } from './labels.ts';
import { nodeCommands } from './nodes.ts';

export { costBudgetCommands } from './cost-budget.ts';
export { costsCommand } from './costs.ts';
export { rateCommands } from './rates.ts';
export { findClusterId } from './find-cluster.ts';

/** Commands over /v1/clusters. Fields that a newer gateway adds to its answers are ignored. */

const cluster = async () => (await import('#edge/contract/clusters.ts')).clusterSchema;

const headings = ['CLUSTER', 'NAME', 'ORGANIZATION', 'STATUS', 'ALLOCATED', 'DOMAIN'];

function row(one: Read<typeof summary>): string[] {
  const { id, name, organization_id: organization, status, public_domain: domain } = one;
  return [id, name, organization, status, `${one.nodes_allocated}/${one.nodes_total}`, domain ?? '-'];
}

async function list(context: CommandContext): Promise<number> {
  const query = queryOf(context, ['org=organization_id', 'status']);
  const rows = await readList(context, { path: clustersPath, item: summary, query });
  const none = 'no clusters; create one with "headgate clusters create NAME --org ORG"';
  return printList(context, rows, { headings, row, none, leaveOut: ['ORGANIZATION', 'DOMAIN'] });
}

async function show(context: CommandContext): Promise<number> {
  return printOne(context, clusterPath(await findClusterId(context, context.words[0] ?? '')), cluster);
}

/** Reads a list of nodes from YAML or JSON, with the fields of the API. */
function readNodes(path: string): unknown {
  const text = readText(path);
  const yaml = loadYaml();
  try {
    const value: unknown = yaml.parse(text);
    if (Array.isArray(value)) return value;
  } catch (error) {
    if (!(error instanceof yaml.YAMLParseError)) throw error;
    throw new UsageError(`${path} is not valid YAML: ${error.message.split('\n')[0] ?? ''}`);
  }
  throw new UsageError(`${path} must contain a list of nodes, each with name, address and hardware_profile`);
}

/** Returns names of clusters by id, archived clusters included. */
export async function readClusterNames(context: CommandContext): Promise<ReadonlyMap<string, string>> {
  const query = new URLSearchParams({ status: 'all' });
  const all = await readList(context, { path: clustersPath, item: summary, query });
  return new Map(all.map(({ id, name }) => [id, name]));
}

/** Returns the name of a cluster; its id if the name cannot be read. */
export async function readClusterName({ api }: CommandContext, id: string): Promise<string> {
  try {
    return (await parseAnswer(summary, await api.call('GET', clusterPath(id)))).name;
  } catch (error) {
    if (error instanceof FailedError) return id;
    throw error;
  }
}

async function create(context: CommandContext): Promise<number> {
  const { api, json, out, words } = context;
  const organization = textFlag(context, 'org');
  if (organization === null) throw new UsageError('--org is missing: give the id of the organization, org_…');
  const [domain, nodes, keyFile] = ['domain', 'nodes', 'private-key'].map((name) => textFlag(context, name));
  const labels = readLabels(textFlags(context, 'label'), false);
  const body = {
    name: words[0],
    labels,
    organization_id: organization,
    ...(domain && { public_domain: domain }),
    ...(nodes && { nodes: readNodes(nodes) }),
    ...(keyFile && { access_identity: { private_key: readText(keyFile) } }),
  };
  const answer = await api.call('POST', clustersPath, { body });
  const made = await parseAnswer(cluster, answer);
  const line = `add this key to ~/.ssh/authorized_keys of its nodes:\n${made.access_identity.public_key}\n`;
  out(json ? jsonText(answer) : `${made.id}: ${made.status}; ${line}`);
  return exitCodes.ok;
}

async function remove(context: CommandContext): Promise<number> {
  const { api, json, out, words } = context;
  const path = clusterPath(await findClusterId(context, words[0] ?? ''));
  const before = await parseAnswer(cluster, await api.call('GET', path));
  await confirm(context, {
    question: `Archive the cluster "${before.name}" (${before.id})?`,
    consequence:
      `All of its ${before.nodes_total} nodes (${before.nodes_allocated} allocated) are released and no longer metered. ` +
      'Its pending and active runs end as FAILED, its web addresses stop, and resources of runs stay on the nodes.',
    done: 'archived',
  });
  await api.call('DELETE', path);
  const answer = await api.call('GET', path);
  const { id, status } = await parseAnswer(cluster, answer);
  out(json ? jsonText(answer) : `${id}: ${status}\n`);
  return exitCodes.ok;
}

const eventResult = async () => (await import('#edge/contract/clusters.ts')).nodeEventResultSchema;

/** Starts or stops metering a node. */
function order(kind: 'allocate' | 'release'): (context: CommandContext) => Promise<number> {
  return async (context) => {
    const { api, json, out, words } = context;
    const [clusterText = '', nodeText = ''] = words;
    const path = `${clusterPath(await findClusterId(context, clusterText))}/nodes/${encodeURIComponent(nodeText)}`;
    const at = textFlag(context, 'at');
    const answer = await api.call('POST', `${path}/${kind}`, { body: at === null ? {} : { at } });
    const { node, allocation } = await parseAnswer(eventResult, answer);
    const { allocated_at: from, released_at: to } = allocation;
    const times = [from === null ? '' : ` from ${from}`, to === null ? '' : ` to ${to}`].join('');
    out(json ? jsonText(answer) : `${cleanLine(node.name)}: ${node.status}; metered${times}\n`);
    if (kind === 'allocate' && !node.priced) context.err(unpricedText(node.hardware_profile));
    return exitCodes.ok;
  };
}

const one = { min: 1, max: 1 } as const;
const clusterAndNode = { min: 2, max: 2 } as const;
const atOption = { at: { type: 'string', about: 'RFC 3339 time, in the past; default: now' } } as const;

export const clusterCommands: readonly Command[] = [
  {
    name: 'clusters ls',
    usage: '[--org ORG] [--status active|archived|all]',
    summary: 'List the clusters: organization, allocated nodes, domain.',
    words: { min: 0, max: 0 },
    options: {
      org: { type: 'string', about: 'only this organization: org_…' },
      status: { type: 'string', choices: ['active', 'archived', 'all'], about: 'default: active' },
    },
    run: list,
  },
  {
    name: 'clusters show',
    usage: 'CLUSTER',
    summary: 'Show a cluster and its nodes, by name or id.',
    words: one,
    names: 'clusters',
    options: {},
    run: show,
  },
  {
    name: 'clusters create',
    usage: 'NAME --org ORG [--domain DOMAIN] [--nodes FILE] [--private-key FILE] [--label KEY=VALUE]',
    summary:
      'Create a cluster and print the public key for its nodes; nodes are a list in YAML or JSON, with the fields of the API.',
    words: one,
    options: {
      org: { type: 'string', about: 'organization that owns the cluster: org_…' },
      domain: { type: 'string', about: 'domain of its web addresses' },
      nodes: { type: 'string', about: 'a file with name, address and hardware_profile of each node' },
      'private-key': { type: 'string', about: 'a file with the private key for its nodes; default: a new key' },
      label: { type: 'string', multiple: true, about: 'a label KEY=VALUE; may be given several times' },
    },
    run: create,
  },
  {
    name: 'clusters allocate',
    usage: 'CLUSTER NODE [--at TIME]',
    summary: 'Start metering a node, by its name or id; its hours count from then on.',
    words: clusterAndNode,
    names: 'clusters',
    options: atOption,
    run: order('allocate'),
  },
  {
    name: 'clusters release',
    usage: 'CLUSTER NODE [--at TIME]',
    summary: 'Stop metering a node.',
    words: clusterAndNode,
    names: 'clusters',
    options: atOption,
    run: order('release'),
  },
  {
    name: 'clusters rm',
    usage: 'CLUSTER [--yes]',
    summary: 'Archive a cluster: release all its nodes and stop metering; asks first.',
    words: one,
    names: 'clusters',
    options: yesOption,
    run: remove,
  },
  ...nodeCommands,
  ...allocationCommands,
];
