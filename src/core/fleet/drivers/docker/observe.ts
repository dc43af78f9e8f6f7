import {
  type ContainerDetail,
  type ContainerSummary,
  demultiplex,
  type HostConnection,
  stderrStream,
} from '#base/docker/docker.ts';
import { tcpEndpoint } from '#base/net/net.ts';
import type { ObservedReplica, Orphan } from '#core/fleet/drivers/driver.ts';
import { type ReplicaExit, replicaExit, startErrors } from '#core/fleet/drivers/replica-exit.ts';
import { apiKeyOf, labels, type Marks, networkName, readGpuIds, readMarks, isStoppingName } from './labels.ts';
import { codeOfReason } from './start-error-code.ts';

/** Derives replicas from the containers of a host. */

export interface ObserveOptions {
  readonly hostName: string;
  readonly connection: HostConnection;
  readonly fleetId: string;
  readonly fleetSecret: string;
  /** Engines of the files, and engines whose files were removed since this gateway started. */
  readonly knownEngines: ReadonlySet<string>;
  /** The newest epoch under which this gateway has acted. */
  readonly epoch: bigint;
  readonly memory: ObserveMemory;
}

/** Facts about containers that do not change any more. */
export interface ObserveMemory {
  /** Exits by container id. */
  readonly exits: Map<string, ReplicaExit>;
  /** When a container that is not started yet was first seen; Unix ms of this machine. */
  readonly unstartedSince: Map<string, number>;
}

export interface ObservedContainers {
  readonly replicas: readonly ObservedReplica[];
  readonly orphans: readonly Orphan[];
  /** Networks of running replicas. */
  readonly networks: ReadonlySet<string>;
}

/** Creation and start are milliseconds apart; after this time the creator has given up. */
const unstartedMsMax = 60_000;
const logTailLines = 200;
const logTailCharsMax = 16_384;

/** @throws DockerError if the host does not answer */
export async function observeContainers(options: ObserveOptions): Promise<ObservedContainers> {
  const { connection, fleetId, memory, hostName, knownEngines } = options;
  const containers = await connection.api.list([`${labels.managed}=true`, `${labels.fleet}=${fleetId}`]);
  const present = new Set(containers.map(({ Id: id }) => id));
  for (const map of [memory.exits, memory.unstartedSince]) {
    for (const id of map.keys()) if (!present.has(id)) map.delete(id);
  }
  connection.keep(new Set(containers.filter(({ State: state }) => state === 'running').map(({ Id: id }) => id)));
  const orphans: Orphan[] = [];
  const replicas: Promise<ObservedReplica | null>[] = [];
  const networks = new Set<string>();
  for (const container of containers) {
    if (container.Labels?.[labels.probe] !== undefined) continue;
    const marks = readMarks(container.Labels ?? {});
    if (marks !== null && knownEngines.has(marks.engineId)) {
      replicas.push(observeContainer(options, container, marks));
      if (container.State === 'running') networks.add(networkName(fleetId, marks.engineId));
      continue;
    }
    orphans.push(orphanOf(hostName, container));
  }
  const observed = await Promise.all(replicas);
  return { replicas: observed.filter((replica) => replica !== null), orphans, networks };
}

/** A container in one of these states uses no device, and nobody starts it any more. */
const endedStates = new Set(['created', 'exited', 'dead']);

function orphanOf(host: string, container: ContainerSummary): Orphan {
  const { Labels: marks = {}, State: state } = container;
  const name = nameOf(container);
  const gpuIds = endedStates.has(state) ? [] : (readGpuIds(marks?.[labels.gpus] ?? '[]') ?? []);
  const engineId = marks?.[labels.engine] ?? null;
  return { host, name, engineId, gpuIds, memoryBytes: 0, endedBy: `docker rm --force ${name}` };
}

/** Returns null if the container vanished meanwhile. */
async function observeContainer(
  options: ObserveOptions,
  container: ContainerSummary,
  marks: Marks,
): Promise<ObservedReplica | null> {
  const { hostName, fleetSecret, fleetId, connection, memory } = options;
  const stopRequested = isStoppingName(nameOf(container));
  const base = {
    specHash: marks.specHash,
    placement: { host: hostName, gpuIds: marks.gpuIds },
    epoch: marks.epoch,
    progress: null,
    health: 'probe' as const,
    exit: null,
  };
  const replica = (endpoint = tcpEndpoint('', 0)) => ({
    id: marks.replicaId,
    engineId: marks.engineId,
    endpoint,
    upstreamModel: null,
    headerLines: marks.kind === 'vllm' ? `Authorization: Bearer ${apiKeyOf(fleetSecret, marks.replicaId)}\r\n` : '',
    forcedUsage: marks.forcedUsage,
    kind: marks.kind,
  });
  if (['running', 'paused', 'restarting'].includes(container.State)) {
    memory.exits.delete(container.Id);
    const endpoint = await connection.endpointOf(container, networkName(fleetId, marks.engineId), marks.port);
    const state = stopRequested ? 'stopping' : endpoint === null ? 'creating' : 'running';
    return { ...base, replica: replica(endpoint ?? undefined), state };
  }
  const exit = await exitOf(options, container, { stopRequested, marks });
  if (exit === 'gone') return null;
  return exit === null
    ? { ...base, replica: replica(), state: 'creating', progress: 'starting' }
    : { ...base, replica: replica(), state: 'exited', exit };
}

/** Returns null while the container may still be started. */
async function exitOf(
  { connection: { api }, memory, epoch }: ObserveOptions,
  { Id: id, State: state }: ContainerSummary,
  { stopRequested, marks }: { stopRequested: boolean; marks: Marks },
): Promise<ReplicaExit | 'gone' | null> {
  const known = memory.exits.get(id);
  if (known !== undefined) return known;
  const detail = await api.inspect(id);
  if (detail === null) return 'gone';
  const failed = (detail.State.Error ?? '') !== '';
  // The creator does not lead any more and will not start the container: no failure of the engine.
  const isOrphaned = state === 'created' && !failed && (marks.epoch ?? 0n) < epoch;
  if (state === 'created' && !failed && !stopRequested && !isOrphaned) {
    const since = memory.unstartedSince.get(id) ?? Date.now();
    memory.unstartedSince.set(id, since);
    if (Date.now() - since < unstartedMsMax) return null;
  }
  const output =
    state === 'created' ? Buffer.alloc(0) : await api.logTail(id, logTailLines).catch(() => Buffer.alloc(0));
  const exit = toExit(detail, stopRequested || isOrphaned, output);
  memory.exits.set(id, exit);
  return exit;
}

function toExit({ State: state }: ContainerDetail, stopRequested: boolean, output: Buffer): ReplicaExit {
  const logTail = demultiplex(output).slice(-logTailCharsMax);
  const errorTail = demultiplex(output, stderrStream).slice(-logTailCharsMax);
  const errorText = state.Error ?? '';
  const neverRan = state.Status === 'created';
  const startErrorCode = errorText === '' ? (neverRan ? startErrors.notStarted : null) : codeOfReason(errorText);
  return replicaExit({
    stopRequested,
    exitCode: neverRan ? null : (state.ExitCode ?? null),
    startErrorCode: startErrorCode ?? (neverRan ? startErrors.refused : null),
    oomKilled: state.OOMKilled === true,
    logTail: errorText === '' ? logTail : `${logTail}\n${errorText}`.trimStart(),
    errorTail: errorText === '' ? errorTail : errorText,
  });
}

export function nameOf({ Names: names, Id: id }: ContainerSummary): string {
  // With links a container has several names; only its own has one slash.
  const own = names?.find((name) => name.lastIndexOf('/') === 0);
  return own?.slice(1) ?? id.slice(0, 12);
}
