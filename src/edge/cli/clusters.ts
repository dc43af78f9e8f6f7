import { readFileSync } from 'node:fs';
import { parse, stringify, YAMLParseError } from 'yaml';
import { z } from 'zod';
import { type Command, type CommandContext, exitCodes, textFlag } from './command.ts';
import { FailedError, UsageError } from './errors.ts';
import { cleanLine, renderTable } from './table.ts';

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

const clusterPage = z.looseObject({ data: z.array(summary), pagination: z.looseObject({ pages: z.number() }) });

const cluster = z.looseObject({
  ...summary.shape,
  access_identity: z.looseObject({ public_key: z.string() }),
});

const clustersPath = '/v1/clusters';
/** The most that a page has. */
const pageLimit = 100;

const clusterPath = (id: string | undefined): string => `${clustersPath}/${encodeURIComponent(id ?? '')}`;

const jsonText = (value: unknown): string => `${JSON.stringify(value, null, 2)}\n`;

/** @throws FailedError where the gateway is of another version than this command */
function parseAnswer<Schema extends z.ZodType>(schema: Schema, answer: unknown): z.output<Schema> {
  const parsed = schema.safeParse(answer);
  if (parsed.success) return parsed.data;
  throw new FailedError('the gateway answers in a form that this command does not know: their versions differ');
}

const headings = ['CLUSTER', 'NAME', 'ORGANIZATION', 'STATUS', 'ALLOCATED', 'DOMAIN'];

function row(one: z.output<typeof summary>): string[] {
  const { id, name, organization_id: organization, status, public_domain: domain } = one;
  return [id, name, organization, status, `${one.nodes_allocated}/${one.nodes_total}`, domain ?? '-'];
}

async function list(context: CommandContext): Promise<number> {
  const rows: z.output<typeof summary>[] = [];
  for (let page = 1, pages = 1; page <= pages; page += 1) {
    const query = new URLSearchParams({ page: String(page), limit: String(pageLimit) });
    for (const name of ['org', 'status']) {
      const value = textFlag(context, name);
      if (value !== null) query.set(name, value);
    }
    const answer = parseAnswer(clusterPage, await context.api.call('GET', `${clustersPath}?${query.toString()}`));
    rows.push(...answer.data);
    pages = answer.pagination.pages;
  }
  context.out(context.json ? jsonText({ data: rows }) : renderTable(headings, rows.map(row)));
  return exitCodes.ok;
}

async function show({ api, json, out, words }: CommandContext): Promise<number> {
  const answer = await api.call('GET', clusterPath(words[0]));
  parseAnswer(cluster, answer);
  out(json ? jsonText(answer) : `${stringify(answer).trimEnd().split('\n').map(cleanLine).join('\n')}\n`);
  return exitCodes.ok;
}

function readText(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? String(error.code) : '';
    throw new UsageError(`${path} cannot be read (${code})`);
  }
}

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
