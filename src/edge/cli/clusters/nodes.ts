import {
  cleanLine,
  type Command,
  type CommandContext,
  type CommandOption,
  confirm,
  exitCodes,
  jsonText,
  parseAnswer,
  readText,
  textFlag,
  textFlags,
  UsageError,
  yesOption,
} from '#edge/cli/shell/shell.ts';
import { clusterPath, findClusterId, unpricedText } from './find-cluster.ts';
import { isLabelChange, labelsText, readLabels } from './labels.ts';

/** Commands over nodes of a cluster, and labels of both. */

const cluster = async () => (await import('#edge/contract/clusters.ts')).clusterSchema;
const node = async () => (await import('#edge/contract/clusters.ts')).nodeSchema;

async function nodesPath(context: CommandContext): Promise<string> {
  return `${clusterPath(await findClusterId(context, context.words[0] ?? ''))}/nodes`;
}

const nodePath = async (context: CommandContext): Promise<string> =>
  `${await nodesPath(context)}/${encodeURIComponent(context.words[1] ?? '')}`;

/** Fields of the API, by option. */
const texts = {
  address: 'address',
  'private-address': 'private_address',
  user: 'ssh_user',
  profile: 'hardware_profile',
};
const numbers = { port: 'ssh_port', gpus: 'gpus' };

/** Reads the options of a node into the form of the API. @throws UsageError */
function bodyOf(context: CommandContext): Record<string, unknown> {
  const body: Record<string, unknown> = {};
  for (const [option, field] of Object.entries(texts)) {
    const text = textFlag(context, option);
    if (text !== null) body[field] = text;
  }
  for (const [option, field] of Object.entries(numbers)) {
    const text = textFlag(context, option);
    if (text === null) continue;
    if (!/^\d{1,9}$/.test(text)) throw new UsageError(`--${option} must be a whole number, not ${text}`);
    body[field] = Number(text);
  }
  const keyFile = textFlag(context, 'host-key');
  if (keyFile !== null) body['host_key'] = readText(keyFile).trim();
  const labels = textFlags(context, 'label');
  if (labels.length > 0) body['labels'] = readLabels(labels, false);
  return body;
}

async function printNode(context: CommandContext, answer: unknown): Promise<number> {
  const { id, name, hardware_profile: profile, gpus, labels, priced } = await parseAnswer(node, answer);
  const text = `${id}: ${cleanLine(name)}, ${cleanLine(profile)}, ${gpus} GPUs, labels ${labelsText(labels)}\n`;
  context.out(context.json ? jsonText(answer) : text);
  if (!priced) context.err(unpricedText(profile));
  return exitCodes.ok;
}

async function add(context: CommandContext): Promise<number> {
  const body = { name: context.words[1], ...bodyOf(context) };
  for (const option of ['address', 'profile']) {
    if (textFlag(context, option) === null) throw new UsageError(`--${option} is missing`);
  }
  return printNode(context, await context.api.call('POST', await nodesPath(context), { body }));
}

async function edit(context: CommandContext): Promise<number> {
  const name = textFlag(context, 'name');
  const body = { ...(name === null ? {} : { name }), ...bodyOf(context) };
  if (Object.keys(body).length === 0) throw new UsageError('give the options of the node to change, such as --address');
  return printNode(context, await context.api.call('PATCH', await nodePath(context), { body }));
}

async function remove(context: CommandContext): Promise<number> {
  const [clusterText = '', nodeText = ''] = context.words;
  const path = await nodePath(context);
  await confirm(context, {
    question: `Remove the node "${nodeText}" from the cluster "${clusterText}"?`,
    consequence: 'It is released and no longer metered. Its costs stay.',
    done: 'removed',
  });
  await context.api.call('DELETE', path);
  context.out(context.json ? jsonText({ node: nodeText, removed: true }) : `${cleanLine(nodeText)}: removed\n`);
  return exitCodes.ok;
}

async function label(context: CommandContext): Promise<number> {
  const [, second = '', ...others] = context.words;
  const isOfNode = !isLabelChange(second);
  const labels = readLabels(isOfNode ? others : [second, ...others], true);
  if (Object.keys(labels).length === 0) throw new UsageError('give labels: KEY=VALUE, or KEY- to remove one');
  const body = { labels };
  if (isOfNode) return printNode(context, await context.api.call('PATCH', await nodePath(context), { body }));
  const path = clusterPath(await findClusterId(context, context.words[0] ?? ''));
  const answer = await context.api.call('PATCH', path, { body });
  const changed = await parseAnswer(cluster, answer);
  const text = `${changed.id}: ${cleanLine(changed.name)}, labels ${labelsText(changed.labels)}\n`;
  context.out(context.json ? jsonText(answer) : text);
  return exitCodes.ok;
}

const nodeOptions = {
  address: { type: 'string', about: 'IP address or host name for SSH' },
  profile: { type: 'string', about: 'hardware profile, by which rate cards set prices' },
  gpus: { type: 'string', about: 'number of GPUs; default for a new node: 0' },
  'private-address': { type: 'string', about: 'address that other nodes use' },
  port: { type: 'string', about: 'SSH port; default for a new node: 22' },
  user: { type: 'string', about: 'SSH user; default for a new node: root' },
  'host-key': { type: 'string', about: 'a file with the public host key of the node' },
  label: { type: 'string', multiple: true, about: 'a label KEY=VALUE; may be given several times' },
} as const satisfies Record<string, CommandOption>;

const clusterAndNode = { min: 2, max: 2 } as const;

export const nodeCommands: readonly Command[] = [
  {
    name: 'clusters add-node',
    usage: 'CLUSTER NAME --address ADDRESS --profile PROFILE [--gpus N] [--host-key FILE] [--label KEY=VALUE]',
    summary: 'Add a node to a cluster; metering starts with "clusters allocate".',
    words: clusterAndNode,
    names: 'clusters',
    options: nodeOptions,
    run: add,
  },
  {
    name: 'clusters edit-node',
    usage: 'CLUSTER NODE [--name NAME] [--address ADDRESS] [--profile PROFILE] [--gpus N] [--label KEY=VALUE]',
    summary: 'Change a node; its profile and GPUs only while it is not allocated.',
    words: clusterAndNode,
    names: 'clusters',
    options: { name: { type: 'string', about: 'new name' }, ...nodeOptions },
    run: edit,
  },
  {
    name: 'clusters rm-node',
    usage: 'CLUSTER NODE [--yes]',
    summary: 'Release a node and remove it from its cluster; asks first.',
    words: clusterAndNode,
    names: 'clusters',
    options: yesOption,
    run: remove,
  },
  {
    name: 'clusters label',
    usage: 'CLUSTER [NODE] KEY=VALUE... [KEY-...]',
    summary: 'Set labels of a cluster or of one node; KEY- removes one. Costs can be grouped by labels.',
    words: { min: 2, max: 40 },
    names: 'clusters',
    options: {},
    run: label,
  },
];
