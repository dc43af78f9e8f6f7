import { parse, YAMLParseError } from 'yaml';
import { z } from 'zod';
import { jsonText, parseAnswer, pathOf, printList, printOne, queryOf, readList, readText } from './answers.ts';
import { type Command, type CommandContext, exitCodes, textFlag } from './command.ts';
import { FailedError, UsageError } from './errors.ts';

/** Commands over /v1/clusters. Fields that a newer gateway adds to its answers are ignored. */

const summary = z.looseObject({
  id: z.string(),
  name: z.string(),
  organization_id: z.string(),
  public_domain: z.string().nullable(),
  status: z.string(),
  nodes_total: z.number(),
  nodes_allocated: z.number(),
});

const cluster = z.looseObject({
  ...summary.shape,
  access_identity: z.looseObject({ public_key: z.string() }),
});

const clustersPath = '/v1/clusters';
const clusterPath = (id: string | undefined): string => pathOf(clustersPath, id);

const headings = ['CLUSTER', 'NAME', 'ORGANIZATION', 'STATUS', 'ALLOCATED', 'DOMAIN'];

function row(one: z.output<typeof summary>): string[] {
  const { id, name, organization_id: organization, status, public_domain: domain } = one;
  return [id, name, organization, status, `${one.nodes_allocated}/${one.nodes_total}`, domain ?? '-'];
}

async function list(context: CommandContext): Promise<number> {
  const query = queryOf(context, ['org', 'status']);
  const rows = await readList(context, { path: clustersPath, item: summary, query });
  return printList(context, rows, { headings, row });
}

const show = (context: CommandContext): Promise<number> => printOne(context, clusterPath(context.words[0]), cluster);

/** A list of nodes in the words of the API, as YAML or JSON. */
function readNodes(path: string): unknown {
  const text = readText(path);
  try {
    const value: unknown = parse(text);
    if (Array.isArray(value)) return value;
  } catch (error) {
    if (!(error instanceof YAMLParseError)) throw error;
    throw new UsageError(`${path} is no YAML: ${error.message.split('\n')[0] ?? ''}`);
  }
  throw new UsageError(`${path} must hold a list of nodes, each with name, address and hardware_profile`);
}

/** An id, from the id or the name of one that is active. @throws FailedError */
export async function findClusterId(context: CommandContext, text: string): Promise<string> {
  if (text.startsWith('cluster_')) return text;
  const query = new URLSearchParams();
  const all = await readList(context, { path: clustersPath, item: summary, query });
  const [first, ...others] = all.filter(({ name }) => name === text);
  if (first === undefined)
    throw new FailedError(`there is no cluster ${text}; "headgate clusters ls" lists the clusters`);
  if (others.length === 0) return first.id;
  const ids = [first, ...others].map(({ id, organization_id: organization }) => `${id} of ${organization}`);
  throw new FailedError(`several clusters have the name ${text}: say which of ${ids.join(', ')}`);
}

async function create(context: CommandContext): Promise<number> {
  const { api, json, out, words } = context;
  const organization = textFlag(context, 'org');
  if (organization === null) throw new UsageError('--org is missing: it names the organization, org_…');
  const [domain, nodes, keyFile] = ['domain', 'nodes', 'private-key'].map((name) => textFlag(context, name));
  const body = {
    name: words[0],
    organization_id: organization,
    ...(domain && { public_domain: domain }),
    ...(nodes && { nodes: readNodes(nodes) }),
    ...(keyFile && { access_identity: { private_key: readText(keyFile) } }),
  };
  const answer = await api.call('POST', clustersPath, { body });
  const made = parseAnswer(cluster, answer);
  const line = `for ~/.ssh/authorized_keys of its nodes:\n${made.access_identity.public_key}\n`;
  out(json ? jsonText(answer) : `${made.id}: ${made.status}; ${line}`);
  return exitCodes.ok;
}

async function remove({ api, json, out, words }: CommandContext): Promise<number> {
  await api.call('DELETE', clusterPath(words[0]));
  const answer = await api.call('GET', clusterPath(words[0]));
  const { id, status } = parseAnswer(cluster, answer);
  out(json ? jsonText(answer) : `${id}: ${status}\n`);
  return exitCodes.ok;
}

const text = { type: 'string' } as const;

export const clusterCommands: readonly Command[] = [
  {
    name: 'clusters ls',
    usage: '[--org ORG] [--status active|archived|all]',
    summary: 'List the clusters: organization, how many of their nodes are allocated, domain.',
    words: { min: 0, max: 0 },
    options: { org: text, status: text },
    run: list,
  },
  {
    name: 'clusters show',
    usage: 'ID',
    summary: 'Show all that is known of a cluster and its nodes.',
    words: { min: 1, max: 1 },
    options: {},
    run: show,
  },
  {
    name: 'clusters create',
    usage: 'NAME --org ORG [--domain DOMAIN] [--nodes FILE] [--private-key FILE]',
    summary:
      'Make a cluster and print the public key for its nodes; nodes are a list in YAML or JSON, with the fields of the API.',
    words: { min: 1, max: 1 },
    options: { org: text, domain: text, nodes: text, 'private-key': text },
    run: create,
  },
  {
    name: 'clusters rm',
    usage: 'ID',
    summary: 'Release all nodes of a cluster, end its metering and archive it.',
    words: { min: 1, max: 1 },
    options: {},
    run: remove,
  },
];
