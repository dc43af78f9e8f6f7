import { readFileSync, statSync } from 'node:fs';
import { isIP } from 'node:net';
import { basename, join, posix, resolve } from 'node:path';
import { z } from 'zod';
import type { DockerAddress } from '#base/docker/docker.ts';
import type { EngineFileProblem } from './engine-file-problem.ts';
import { readYaml } from './yaml-source.ts';
import { issueProblems, located } from './zod-problems.ts';

/** The file `hosts.yaml` of the engines folder: machines whose Docker engines run containers, and the Swarm. */

export const dockerHostsFileName = 'hosts.yaml';

/** A GPU that the file lists explicitly. */
export interface HostGpu {
  readonly id: string;
  readonly memoryBytes: number | null;
  readonly profile: string | null;
}

/**
 * Ways to give containers GPUs: device requests of the nvidia runtime, CDI, only an environment variable, or the device
 * files of AMD's ROCm.
 */
export type GpuAccess = 'nvidia' | 'cdi' | 'environment' | 'rocm';

export interface DockerHostSettings {
  readonly name: string;
  readonly docker: DockerAddress;
  /** IP address on which replicas publish their port; null: replicas are reached at their own address. */
  readonly address: string | null;
  readonly pools: readonly string[];
  /** null: the GPUs that the Docker engine reports. */
  readonly gpus: readonly HostGpu[] | null;
  /** null: the way that the Docker engine offers. */
  readonly gpuAccess: GpuAccess | null;
  /** Image in which `nvidia-smi` runs with the host's GPUs; null: an engine's own image. */
  readonly probeImage: string | null;
}

/** Settings of the Swarm that runs engines with `driver: swarm`. */
export interface SwarmSettings {
  /** Address of one of the Swarm's managers. */
  readonly docker: DockerAddress;
  /**
   * Way to reach tasks: on an overlay network that the gateway's own container joins, or on a port published on the
   * address of the task's node.
   */
  readonly network: 'overlay' | 'host';
  /** Kind of the generic resource as which nodes offer their GPUs. */
  readonly gpuResource: string;
  /**
   * Place of secrets: Swarm secrets, read by a shell in the image, or variables, readable by anybody who can inspect
   * the service.
   */
  readonly secrets: 'files' | 'environment';
  /** True if the file names the Swarm; a named Swarm is contacted even if no engine runs there. */
  readonly isNamed: boolean;
  /** Address of the service of docker-gates on nodes that accept runs of stacks; null: no node accepts runs. */
  readonly gates: { readonly host: string; readonly port: number } | null;
}

/** Result of reading the file. `swarm` is null if nothing names a manager to contact. */
export type DockerHostsResult =
  | {
      readonly ok: true;
      readonly hosts: readonly DockerHostSettings[];
      /** True if the file names the hosts; otherwise the only host is that of `DOCKER_HOST`. */
      readonly areHostsNamed: boolean;
      readonly swarm: SwarmSettings | null;
    }
  | { readonly ok: false; readonly problems: readonly EngineFileProblem[] };

const defaultSocketPath = '/var/run/docker.sock';
const gibibyte = 2 ** 30;
const fileBytesMax = 1_048_576;
const namePattern = /^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$/;
const name = z.string().regex(namePattern, 'expected up to 63 letters, digits and . _ -');
const path = z.string().regex(/^\/[^\0]*$/, 'expected an absolute path');

const gpuSchema = z.strictObject({
  id: z
    .string()
    .regex(/^[A-Za-z0-9][A-Za-z0-9._:/=-]{0,127}$/, 'expected a UUID or the name of the device on the host')
    .describe('UUID as `nvidia-smi -L` prints it, a CDI name such as amd.com/gpu=0, or renderD128 for rocm.'),
  memory_gib: z.number().positive().max(1_000_000).optional().describe('Memory of the GPU.'),
  profile: z.string().min(1).max(128).optional().describe('Product name of the GPU.'),
});

const reachFields = {
  docker: z
    .string()
    .max(2048)
    .describe('unix:///var/run/docker.sock, tcp://host:2376 or ssh://user@host')
    .superRefine((text, context) => {
      const message = addressProblem(text);
      if (message !== null) context.addIssue({ code: 'custom', message });
    }),
  tls: z.strictObject({ ca: path, cert: path, key: path }).optional().describe('PEM files, for tcp.'),
  ssh: z
    .strictObject({
      key: path.describe('File with the private key.'),
      host_key: z.string().regex(/^SHA256:[A-Za-z0-9+/]{43}=?$/, 'expected SHA256:…, as ssh-keygen -l prints it'),
    })
    .optional()
    .describe('Settings for ssh:// addresses.'),
  same_machine: z
    .boolean()
    .default(false)
    .describe(
      'For tcp: true if the address is a proxy of the Docker socket on the machine of the gateway. Needs no tls and no address.',
    ),
};

const hostSchema = z.strictObject({
  name: name.describe('Name of the host in engine files.'),
  ...reachFields,
  address: z
    .string()
    .refine((text) => isIP(text) !== 0 && text !== '0.0.0.0' && text !== '::', 'expected one IP address of the host')
    .optional()
    .describe('Private address on which replicas publish their port. Required for tcp.'),
  pools: z.array(name).max(100).default([]).describe('Names that engine files may use instead of a host name.'),
  gpus: z
    .preprocess(
      (value) => (value === 'auto' ? undefined : value),
      z.array(gpuSchema, 'expected auto or a list of GPUs').max(1000).optional(),
    )
    .describe('auto, or a list.'),
  gpu_access: z
    .enum(['nvidia', 'cdi', 'environment', 'rocm'])
    .optional()
    .describe('How containers get access to GPUs. rocm: /dev/kfd and the files of their GPUs in /dev/dri.'),
  probe_image: z.string().min(1).max(1024).optional().describe('Image that runs nvidia-smi.'),
});

/** Matches tasks.SERVICE, a DNS name with one address per task. The service's own name reaches one task at a time. */
const gatesPattern = /^tcp:\/\/tasks\.[A-Za-z0-9][A-Za-z0-9_.-]{0,200}(?::\d{1,5})?$/;

const swarmSchema = z.strictObject({
  ...reachFields,
  network: z
    .enum(['overlay', 'host'])
    .default('overlay')
    .describe(
      'overlay: requires the gateway to run in a container on this manager. host: tasks publish a port on their node.',
    ),
  gpu_resource: name.default('NVIDIA-GPU').describe('Generic resource under which the nodes offer their GPUs.'),
  secrets: z
    .enum(['files', 'environment'])
    .default('files')
    .describe('files: Swarm secrets, read by a shell in the image. environment: for images without a shell.'),
  gates: z
    .string()
    .regex(gatesPattern, 'expected tcp://tasks.SERVICE:2375')
    .optional()
    .describe('tcp://tasks.SERVICE:2375: the docker-gate service on the nodes that execute stack runs.'),
});

const fileSchema = z.strictObject({
  hosts: z.array(hostSchema).min(1).max(1000).optional(),
  swarm: swarmSchema.optional().describe('Docker Swarm for engines with driver: swarm.'),
});
type HostFile = z.output<typeof hostSchema>;
type SwarmFile = z.output<typeof swarmSchema>;
type Reach = Pick<HostFile, 'docker' | 'tls' | 'ssh' | 'address' | 'same_machine'>;

export interface DockerHostsOptions {
  /** Address of the Docker engine of `local`, the only host without the file. */
  readonly defaultDocker: string;
}

/** Reads `hosts.yaml` of an engines folder. Without the file there is one host, `local`. */
export function loadDockerHosts(folder: string, { defaultDocker }: DockerHostsOptions): DockerHostsResult {
  const file = `${basename(resolve(folder))}/${dockerHostsFileName}`;
  const whole = (message: string): DockerHostsResult => ({
    ok: false,
    problems: [{ file, line: null, field: null, message }],
  });
  let text: string;
  try {
    const filePath = join(folder, dockerHostsFileName);
    if (statSync(filePath).size > fileBytesMax) return whole(`larger than ${fileBytesMax} bytes`);
    text = readFileSync(filePath, 'utf8');
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? String(error.code) : 'unknown error';
    if (code !== 'ENOENT') return whole(`cannot be read (${code})`);
    return localHost(defaultDocker);
  }
  const yaml = readYaml(text);
  if (!yaml.ok) {
    return { ok: false, problems: yaml.problems.map(({ line, message }) => ({ file, line, field: null, message })) };
  }
  const parsed = fileSchema.safeParse(yaml.source.value);
  const found = parsed.success ? fileProblems(parsed.data) : issueProblems(parsed.error.issues, yaml.source.value);
  if (parsed.success && found.length === 0) return withDefaults(parsed.data, defaultDocker);
  return { ok: false, problems: found.map((problem) => located(file, yaml.source, problem)) };
}

/**
 * Returns the only host without the file. A machine with Docker Desktop cannot reach containers at their own address,
 * so replicas publish on its loopback.
 */
function localHost(docker: string): DockerHostsResult {
  const problem = addressProblem(docker) ?? (docker.startsWith('ssh:') ? 'define ssh hosts in hosts.yaml' : null);
  if (problem !== null) {
    return { ok: false, problems: [{ file: 'DOCKER_HOST', line: null, field: null, message: problem }] };
  }
  const address = process.platform === 'linux' ? undefined : '127.0.0.1';
  const host = { name: 'local', docker, pools: [], same_machine: true, gpus: undefined, address };
  const swarm = swarmSchema.parse({ docker });
  return { ok: true, hosts: [toSettings(host)], areHostsNamed: false, swarm: toSwarmSettings(swarm, false) };
}

/** Fills parts that the file leaves out with the settings without a file. */
function withDefaults({ hosts, swarm }: z.output<typeof fileSchema>, defaultDocker: string): DockerHostsResult {
  const local = localHost(defaultDocker);
  if (hosts === undefined && !local.ok) return local;
  return {
    ok: true,
    hosts: hosts?.map(toSettings) ?? (local.ok ? local.hosts : []),
    areHostsNamed: hosts !== undefined,
    swarm: swarm === undefined ? (local.ok ? local.swarm : null) : toSwarmSettings(swarm, true),
  };
}

function addressProblem(text: string): string | null {
  const url = URL.parse(text);
  const expected = 'expected unix:///path, tcp://host:port or ssh://user@host';
  if (url === null || !['unix:', 'tcp:', 'ssh:'].includes(url.protocol)) return expected;
  if (url.password !== '') return 'a password is not allowed here';
  if (url.search !== '' || url.hash !== '') return 'a query or a fragment is not allowed here';
  if (url.protocol === 'unix:') return url.host === '' && url.pathname.length > 1 ? null : expected;
  if (url.hostname === '') return expected;
  if (url.protocol === 'ssh:') return url.username === '' ? 'the user is missing: ssh://user@host' : null;
  if (url.username !== '') return 'a user is not allowed here';
  return url.pathname === '' || url.pathname === '/' ? null : 'a path is not allowed here';
}

interface Problem {
  readonly path: readonly PropertyKey[];
  readonly message: string;
}

function fileProblems({ hosts, swarm }: z.output<typeof fileSchema>): Problem[] {
  if (hosts === undefined && swarm === undefined) return [{ path: ['hosts'], message: 'this field is missing' }];
  return [...meaningProblems(hosts ?? []), ...swarmProblems(swarm)];
}

function meaningProblems(hosts: readonly HostFile[]): Problem[] {
  const names = new Set<string>();
  const byEngine = new Map<string, string>();
  return hosts.flatMap((host, index) => {
    const problems: Problem[] = [...reachProblems(host)].map(([field, message]) => ({
      path: ['hosts', index, field],
      message,
    }));
    if (names.has(host.name)) {
      const message = `${JSON.stringify(host.name)} is already the name of another host`;
      problems.push({ path: ['hosts', index, 'name'], message });
    }
    names.add(host.name);
    const engine = engineKey(host);
    const same = byEngine.get(engine);
    if (same === undefined) byEngine.set(engine, host.name);
    else {
      const message = `same Docker engine as host ${JSON.stringify(same)}: list each machine once, because its GPUs would be assigned twice`;
      problems.push({ path: ['hosts', index, 'docker'], message });
    }
    const ofGpus = [...rocmProblems(host), ...twiceProblems(host)];
    return [...problems, ...ofGpus.map(({ path, message }) => ({ path: ['hosts', index, ...path], message }))];
  });
}

/** Finds devices that the list would assign twice. Only CDI names show that a slice and a card belong together. */
function twiceProblems({ gpus = [] }: HostFile): Problem[] {
  const ids = gpus.map(({ id }) => id);
  const shortIds = ids.map((id) => id.replace(/^nvidia\.com\/gpu=/, ''));
  return shortIds.flatMap((id, at) => {
    const path = ['gpus', at, 'id'];
    if (shortIds.indexOf(id) !== at) return [{ path, message: 'listed twice' }];
    const card = shortIds.indexOf(/^(\d+):\d+$/.exec(id)?.[1] ?? '');
    return card === -1 ? [] : [{ path, message: `a slice of ${ids[card]}, which is listed too` }];
  });
}

/** Device files are named in the file: Docker knows nothing about GPUs without CDI or a runtime. */
function rocmProblems({ gpu_access: access, gpus }: HostFile): Problem[] {
  if (access !== 'rocm') return [];
  if (gpus === undefined) return [{ path: ['gpus'], message: 'list the GPUs: with rocm, Docker does not report them' }];
  return gpus.flatMap(({ id }, at) => {
    const message = 'expected the file of the GPU in /dev/dri, such as renderD128';
    return /^renderD\d{1,4}$/.test(id) ? [] : [{ path: ['gpus', at, 'id'], message }];
  });
}

function swarmProblems(swarm: SwarmFile | undefined): Problem[] {
  if (swarm === undefined) return [];
  const isHere = swarm.docker.startsWith('unix:') || swarm.same_machine;
  // Nodes of a Swarm have their own addresses.
  const address = swarm.docker.startsWith('tcp:') ? 'of each node' : undefined;
  const problems = [...reachProblems({ ...swarm, address })];
  if (swarm.network === 'overlay' && !isHere) {
    problems.push([
      'network',
      'use host: the gateway can join overlay networks only through the Docker engine of its own machine',
    ]);
  }
  return problems.map(([field, message]) => ({ path: ['swarm', field], message }));
}

/** Yields fields that do not fit the way a host is reached. */
function* reachProblems(host: Reach): Generator<readonly [field: string, message: string]> {
  const scheme = host.docker.slice(0, host.docker.indexOf(':'));
  if (scheme !== 'tcp' && host.tls !== undefined) yield ['tls', 'allowed for tcp:// only'];
  if (scheme !== 'ssh' && host.ssh !== undefined) yield ['ssh', 'allowed for ssh:// only'];
  if (scheme === 'ssh') {
    if (host.ssh === undefined) yield ['ssh', 'this field is missing'];
    if (host.address !== undefined) yield ['address', 'remove it; the gateway reaches replicas through ssh'];
    if (host.same_machine) yield ['same_machine', 'not allowed for ssh hosts, which are other machines'];
  }
  if (scheme === 'tcp' && !host.same_machine) {
    if (host.address === undefined)
      yield ['address', 'this field is missing: replicas publish their port on this address'];
    if (host.tls === undefined && !isLoopback(host.docker)) {
      yield ['tls', 'this field is missing: without TLS, anyone who reaches the Docker engine controls its machine'];
    }
  }
}

/**
 * Returns the same key for all spellings of one address. Two addresses of one Docker engine are detected only when the
 * engine answers.
 */
function engineKey({ docker, tls }: HostFile): string {
  const { protocol, hostname, port, pathname } = new URL(docker);
  const defaultPort = protocol === 'ssh:' ? '22' : tls === undefined ? '2375' : '2376';
  const path = protocol === 'ssh:' && pathname.length <= 1 ? defaultSocketPath : decodeURIComponent(pathname);
  if (protocol === 'unix:') return `unix ${posix.normalize(path)}`;
  const place = `${protocol} ${hostname.toLowerCase()} ${port === '' ? defaultPort : port}`;
  return protocol === 'tcp:' ? place : `${place} ${posix.normalize(path)}`;
}

function isLoopback(docker: string): boolean {
  const hostname = URL.parse(docker)?.hostname ?? '';
  return hostname === 'localhost' || hostname === '[::1]' || hostname.startsWith('127.');
}

function toSettings(host: HostFile): DockerHostSettings {
  const gpus = host.gpus?.map(({ id, memory_gib: memory, profile }) => ({
    id,
    memoryBytes: memory === undefined ? null : Math.round(memory * gibibyte),
    profile: profile ?? null,
  }));
  return {
    name: host.name,
    docker: toAddress(host),
    address: host.address ?? null,
    pools: host.pools,
    gpus: gpus ?? null,
    gpuAccess: host.gpu_access ?? null,
    probeImage: host.probe_image ?? null,
  };
}

function toSwarmSettings(swarm: SwarmFile, isNamed: boolean): SwarmSettings {
  const { network, secrets, gpu_resource: gpuResource } = swarm;
  const gates = swarm.gates === undefined ? null : toGates(swarm.gates);
  return { docker: toAddress(swarm), network, gpuResource, secrets, isNamed, gates };
}

function toGates(text: string): { readonly host: string; readonly port: number } {
  // Split by hand: service names may have underscores, host names of URLs may not.
  const [host = '', port = '2375'] = text.slice('tcp://'.length).split(':');
  return { host, port: Number(port) };
}

function toAddress({ docker, tls, ssh }: Reach): DockerAddress {
  const url = new URL(docker);
  const host = url.hostname.replace(/^\[(.*)\]$/, '$1');
  const port = Number(url.port);
  if (url.protocol === 'unix:') return { type: 'unix', socketPath: decodeURIComponent(url.pathname) };
  if (url.protocol === 'tcp:') {
    return { type: 'tcp', host, port: port === 0 ? (tls === undefined ? 2375 : 2376) : port, tls: tls ?? null };
  }
  if (ssh === undefined) throw new Error('An ssh host passed the checks without its keys.');
  return {
    type: 'ssh',
    user: decodeURIComponent(url.username),
    host,
    port: port === 0 ? 22 : port,
    socketPath: url.pathname.length > 1 ? decodeURIComponent(url.pathname) : defaultSocketPath,
    key: ssh.key,
    hostKey: ssh.host_key,
  };
}
