import { createHash } from 'node:crypto';
import { type ClusterContext, type StackPackage, textsIn } from '#core/runs/lifecycle/lifecycle.ts';
import type { ReachedNode, WorkFile, WorkPaths } from '#core/runs/runner/runner.ts';

/** Names that Headgate sets if a module declares them; an input of a stack cannot have one. */
export const injectedNames = [
  'cluster_id',
  'cluster_name',
  'public_domain',
  'nodes',
  'node_addresses',
  'ssh_user',
  'ssh_private_key',
  'ssh_private_key_file',
  'engine_api_key',
] as const;

/** Folder of the package in the work folder. */
const packageDir = 'm';
const platformDir = '.platform';

/** Paths in a work folder, relative to its top. */
export interface WorkLayout {
  /** The folder in which Terraform runs. */
  readonly cwd: string;
  readonly state: string;
  readonly lockFile: string;
  readonly backend: string;
  readonly plan: string;
  /** Files that contain secrets. */
  readonly secret: readonly string[];
  /** An argument of Terraform, relative to `cwd`. */
  readonly variablesArgument: string;
  readonly planArgument: string;
}

export function layoutOf(root: string): WorkLayout {
  const cwd = root === '' ? packageDir : `${packageDir}/${root}`;
  return {
    cwd,
    state: `${cwd}/terraform.tfstate`,
    lockFile: `${cwd}/.terraform.lock.hcl`,
    backend: `${cwd}/.terraform/terraform.tfstate`,
    plan: `${cwd}/${platformDir}/plan`,
    secret: ['id', 'variables.json', 'plan'].map((name) => `${cwd}/${platformDir}/${name}`),
    variablesArgument: `-var-file=${platformDir}/variables.json`,
    planArgument: `${platformDir}/plan`,
  };
}

export interface RunContext {
  readonly stack: StackPackage;
  readonly cluster: ClusterContext;
  readonly privateKey: string;
  /** A node's name; empty for the whole cluster. */
  readonly node: string;
  readonly inputs: Readonly<Record<string, unknown>>;
  readonly state: Buffer | null;
  readonly lockFile: Buffer | null;
  /** The plan that somebody confirmed; null if the run makes its own. */
  readonly plan: Buffer | null;
}

/** Identifies the values of all variables. A saved plan contains them. */
export function variablesSha256(context: RunContext, { root }: WorkPaths): string {
  const variables = variablesOf(context, `${root}/${layoutOf(context.stack.root).cwd}`);
  return createHash('sha256').update(JSON.stringify(variables)).digest('hex');
}

/**
 * Returns all files of a work folder. The package's files come first and cannot overwrite Headgate's: uploads with such
 * names are rejected.
 */
export function workFiles(context: RunContext, paths: WorkPaths): WorkFile[] {
  const { stack, privateKey, state, lockFile, plan } = context;
  const { cwd, ...layout } = layoutOf(stack.root);
  const text = (path: string, content: string): WorkFile => ({ path, bytes: Buffer.from(content, 'utf8') });
  const ours = [
    text('.terraform.rc', cliConfig(paths.mirror)),
    // Terraform reads this file last, so it overrides any backend or cloud block of the package.
    text(`${cwd}/~platform_override.tf.json`, JSON.stringify({ terraform: { backend: { local: {} } } })),
    text(`${cwd}/${platformDir}/id`, privateKey.endsWith('\n') ? privateKey : `${privateKey}\n`),
    text(`${cwd}/${platformDir}/variables.json`, JSON.stringify(variablesOf(context, `${paths.root}/${cwd}`))),
    ...(state === null ? [] : [{ path: layout.state, bytes: state }]),
    ...(lockFile === null ? [] : [{ path: layout.lockFile, bytes: lockFile }]),
    ...(plan === null ? [] : [{ path: layout.plan, bytes: plan }]),
  ];
  const taken = new Set(ours.map(({ path }) => path));
  const own = stack.files
    .map((file) => ({ ...file, path: `${packageDir}/${file.path}` }))
    .filter(({ path }) => !taken.has(path));
  return [...own, ...ours];
}

function cliConfig(mirror: string | null): string {
  if (mirror === null) return 'disable_checkpoint = true\n';
  return `disable_checkpoint = true
provider_installation {
  filesystem_mirror {
    path    = ${JSON.stringify(mirror)}
    include = ["*/*/*"]
  }
}
`;
}

/** Returns only the variables that the module declares: Terraform warns about others. */
function variablesOf({ stack, cluster, privateKey, node, inputs }: RunContext, cwd: string): Record<string, unknown> {
  const nodes = node === '' ? cluster.nodes : cluster.nodes.filter(({ name }) => name === node);
  const injected: Record<(typeof injectedNames)[number], unknown> = {
    cluster_id: cluster.publicId,
    cluster_name: cluster.name,
    public_domain: cluster.publicDomain ?? '',
    nodes,
    node_addresses: nodes.map(({ address }) => address),
    ssh_user: nodes[0]?.ssh_user ?? 'root',
    ssh_private_key: privateKey,
    ssh_private_key_file: `${cwd}/${platformDir}/id`,
    engine_api_key: cluster.engineApiKey,
  };
  const declared = new Set(stack.inputs.map(({ name }) => name));
  const all: Record<string, unknown> = { ...inputs, ...injected };
  return Object.fromEntries(Object.entries(all).filter(([name]) => declared.has(name)));
}

/** Values that no log may show. */
export function secretsOf({
  stack,
  cluster,
  privateKey,
  inputs,
}: Pick<RunContext, 'stack' | 'privateKey' | 'inputs'> & {
  readonly cluster: Pick<ClusterContext, 'engineApiKey'>;
}): string[] {
  const hidden = stack.inputs.filter((input) => input.sensitive);
  const sensitive = hidden.map(({ name, default: otherwise }) => inputs[name] ?? otherwise);
  return [privateKey, cluster.engineApiKey, ...sensitive.flatMap(textsIn)];
}

/** Addresses that a run may reach, where its runner limits the network. */
export function reachOf({ cluster }: RunContext): readonly ReachedNode[] {
  return cluster.nodes.flatMap(({ address, private_address: inside, ssh_port: sshPort }) =>
    (inside === null ? [address] : [address, inside]).map((one) => ({ address: one, sshPort })),
  );
}
