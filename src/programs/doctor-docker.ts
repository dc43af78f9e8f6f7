import { readDockerHosts } from '#app/app.ts';
import type { Config } from '#base/config/config.ts';
import { connectHost, type DockerInfo } from '#base/docker/docker.ts';
import { gateAddresses, type SwarmGates } from '#core/runs/runs.ts';
import { enginesDirOf, type Finding, note, ok, readEngines, wrong } from './doctor-checks.ts';

/** Checks the Docker engines that a gateway would use for engines and for runs of stacks. */

type ReadEngine = Extract<ReturnType<typeof readEngines>, { readonly ok: true }>['engines'][number];
type AskedHost = Parameters<typeof connectHost>[0] & { readonly name: string; readonly isRocm: boolean };

const needsContainerGpus = ({ enabled, driver }: ReadEngine): boolean =>
  enabled && (driver.type === 'docker' || driver.type === 'swarm') && driver.gpus !== null;

const toolkit =
  'if the host has GPUs of NVIDIA, install the NVIDIA Container Toolkit, run "nvidia-ctk runtime configure --runtime=docker" and ' +
  'restart Docker; GPUs of AMD and Intel need CDI or gpu_access: rocm; else add a host with GPUs to hosts.yaml';

/** Asks each Docker engine in the way a gateway does. */
export async function checkDocker(config: Config): Promise<readonly Finding[]> {
  const read = readEngines(config);
  const kinds = read.ok ? read.engines.filter(({ enabled }) => enabled).map(({ driver }) => driver.type) : [];
  const needing = read.ok ? read.engines.filter(needsContainerGpus).map(({ id }) => id) : [];
  const { hosts, swarm, areHostsNamed } = readDockerHosts(config.docker, enginesDirOf(config));
  const image = config.platform.containerRuns?.image ?? null;
  const gates = swarm?.gates ?? null;
  const takeRuns = image !== null && (gates === null || areHostsNamed);
  const asked: AskedHost[] =
    kinds.includes('docker') || takeRuns
      ? hosts.map(({ name, docker, address, gpuAccess }) => ({ name, docker, address, isRocm: gpuAccess === 'rocm' }))
      : [];
  if (kinds.includes('swarm') && swarm !== null)
    asked.push({ name: 'swarm', docker: swarm.docker, address: null, isRocm: false });
  const engines = Promise.all(asked.map((host) => askEngine(host, needing)));
  const found = (await Promise.all([engines, gates === null ? [] : checkGates(gates, image)])).flat();
  return found.length > 0 ? found : [note('no enabled engine is a container')];
}

async function askEngine({ name, isRocm, ...host }: AskedHost, needing: readonly string[]): Promise<Finding> {
  const connection = connectHost(host);
  try {
    const info = await connection.api.info();
    const source = gpuSource(info, isRocm);
    const answers = `${name}: answers (${(info.ID ?? '').slice(0, 12)}${source === null ? '' : `, with ${source}`})`;
    // A hook may provide GPUs without the runtime, which only a start of a container shows.
    return source !== null || needing.length === 0
      ? ok(answers)
      : note(`${answers}; ${needing.join(', ')} need GPUs`, toolkit);
  } catch (error) {
    return wrong(
      `${name}: the Docker engine cannot be used (${messageOf(error)})`,
      'check that it runs and that this user may use it; hosts.yaml and DOCKER_HOST set its address',
    );
  } finally {
    connection.close();
  }
}

/** Names what gives GPUs to containers; null if nothing is known. */
function gpuSource({ Runtimes: runtimes, DiscoveredDevices: devices }: DockerInfo, isRocm: boolean): string | null {
  if (Object.keys(runtimes ?? {}).includes('nvidia')) return 'the NVIDIA runtime';
  if ((devices ?? []).some(({ ID: id }) => /^(?:nvidia|amd|intel)\.com\/gpu=/.test(id))) return 'GPUs by CDI';
  return isRocm ? 'gpu_access: rocm' : null;
}

const gatesHelp =
  'deploy compose/swarm-gates.yaml, run the gateway in the network of its service, and set swarm.gates in hosts.yaml to ' +
  'that service: tcp://tasks.SERVICE:2375';

/**
 * Checks the docker-gates of a Swarm's nodes: the name has one address per node.
 * @param image image of runs; null: nothing uses the gates
 */
export async function checkGates(
  gates: SwarmGates,
  image: string | null,
  addressesOf: (name: string) => Promise<readonly string[]> = gateAddresses,
): Promise<readonly Finding[]> {
  const name = `swarm.gates ${gates.host}:${gates.port}`;
  if (image === null) {
    return [note(`${name}: not used`, 'set HEADGATE_RUNS_IMAGE to run stacks in containers on these nodes')];
  }
  let addresses: readonly string[];
  try {
    addresses = await addressesOf(gates.host);
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? String(error.code) : messageOf(error);
    return [wrong(`${name}: the name has no address (${code})`, gatesHelp)];
  }
  return Promise.all(addresses.map((address) => askGate(name, { host: address, port: gates.port }, image)));
}

async function askGate(name: string, { host, port }: SwarmGates, image: string): Promise<Finding> {
  const connection = connectHost({ docker: { type: 'tcp', host, port, tls: null }, address: null });
  const at = `${name}: the gate at ${host}`;
  try {
    await connection.api.negotiate();
    const { Name: node } = await connection.api.info();
    const answers = `${at} answers (node ${node ?? 'without a name'})`;
    if (await connection.api.hasImage(image)) return ok(answers);
    return note(`${answers} and does not have ${image}`, 'the first run there pulls the image');
  } catch (error) {
    return wrong(`${at} cannot be used (${messageOf(error)})`, 'read the log of docker-gate on that node');
  } finally {
    connection.close();
  }
}

const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));
