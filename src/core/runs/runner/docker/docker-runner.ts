import { posix } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { type ContainerDetail, demultiplex, type DockerApi, DockerError, packArchive } from '#base/docker/docker.ts';
import { closedLine } from '#base/net/net.ts';
import {
  FileTooLargeError,
  type PhaseState,
  type Runner,
  RunnerRefusedError,
  type WorkFile,
} from '#core/runs/runner/types.ts';
import { type ContainerSettings, keeperBody, mirrorPath, owner, phaseBody, volumePath, workPath } from './bodies.ts';
import {
  containerName,
  interruptedName,
  keeperPhase,
  labels,
  networkName,
  runOfNetwork,
  unclaimedName,
} from './names.ts';
import { PhaseLog } from './phase-log.ts';

export interface DockerRunnerOptions {
  readonly api: DockerApi;
  /** Name of the machine that operators use. */
  readonly host: string;
  /** Id of the machine's Docker engine. */
  readonly engineId: string;
  readonly fleetId: string;
  readonly settings: ContainerSettings;
}

const networkTries = 5;
const networkPauseMs = 1000;
const isNetworkMissing = ({ status, reason }: DockerError): boolean =>
  status === 404 && /^network \S+ not found/.test(reason);

/** Maximum wait for a closed network: closing takes a moment, and several seconds on a busy machine. */
const keeperWaitMs = 30_000;
const keeperPollMs = 30;
/** Age up to which a container's state is reused while its output continues. */
const freshMs = 2000;
/** Docker's exit code for a container that ended while the engine was down. */
const lostExitCode = 255;

interface Seen {
  readonly id: string;
  readonly atMs: number;
  readonly state: PhaseState;
  /** Null until the first read, and after a failed one. */
  log: PhaseLog | null;
}

/**
 * Creates the runner of one Docker engine: a container per phase, and a keeper container with the run's volume and
 * network.
 */
export function createDockerRunner(options: DockerRunnerOptions): Runner {
  return new DockerRunner(options);
}

class DockerRunner implements Runner {
  readonly kind = 'docker';
  readonly place: string;
  readonly #options: DockerRunnerOptions;
  /** Keys are names of containers. */
  readonly #seen = new Map<string, Seen>();

  constructor(options: DockerRunnerOptions) {
    this.#options = options;
    this.place = `docker ${options.engineId}`;
  }

  paths(): { readonly root: string; readonly mirror: string | null } {
    return { root: workPath, mirror: this.#options.settings.mirror === null ? null : mirrorPath };
  }

  async prepare(runId: string, files: readonly WorkFile[], nodes: Parameters<Runner['prepare']>[2]): Promise<void> {
    const { api, fleetId, settings } = this.#options;
    const reach = nodes.map(({ address }) => address);
    // A gateway that paused while another one adopted the run must not delete the run's folder.
    const made = await api.list([`${labels.runs}=${fleetId}`, `${labels.run}=${runId}`]);
    const hasBegun = made.some(({ Labels: marks }) => marks?.[labels.phase] !== keeperPhase);
    if (hasBegun) throw new Error('a phase of the run has already started');
    await this.remove(runId);
    await this.#orRefused(async () => {
      if (settings.network === null) {
        await api.createNetwork(networkName(runId), {
          [labels.managed]: 'true',
          [labels.runs]: fleetId,
          [labels.run]: runId,
        });
      }
      await this.#whileNetworkComes(runId, () => this.#makeKeeper(runId, files, reach));
    });
  }

  async #makeKeeper(runId: string, files: readonly WorkFile[], reach: readonly string[]): Promise<void> {
    const { api, fleetId, settings } = this.#options;
    const keeper = await api.create(containerName(runId, keeperPhase), keeperBody({ runId, fleetId, settings, reach }));
    // The subfolder belongs to the run's user; the root of a volume does not.
    const folders = ['run', 'run/home'].map((path) => ({ path, bytes: null }));
    const inRun = files.map((file) => ({ ...file, path: `run/${file.path}` }));
    await api.putArchive(keeper, volumePath, await packArchive([...folders, ...inRun], owner));
    await api.start(keeper);
    await this.#untilClosed(keeper);
  }

  /**
   * Retries while the network is missing: a Swarm node drops a network with its last container, so a new one may not
   * find it.
   */
  async #whileNetworkComes(runId: string, make: () => Promise<void>): Promise<void> {
    for (let triesLeft = this.#options.settings.network === null ? 0 : networkTries; ; triesLeft -= 1) {
      try {
        return await make();
      } catch (error) {
        if (triesLeft === 0 || !(error instanceof DockerError) || !isNetworkMissing(error)) throw error;
      }
      await pause(networkPauseMs);
      await this.remove(runId);
    }
  }

  /** Waits until the run's network is closed: nothing of a run may start before. */
  async #untilClosed(keeper: string): Promise<void> {
    const { api, settings, host } = this.#options;
    for (const endMs = Date.now() + keeperWaitMs; Date.now() < endMs; await pause(keeperPollMs)) {
      const keeperLog = demultiplex(await api.logTail(keeper, 20));
      if (keeperLog.split('\n').includes(closedLine)) return;
      const status = (await api.inspect(keeper))?.State.Status;
      if (status === 'running' || status === 'created') continue;
      const why = demultiplex(await api.logTail(keeper, 1)).trim();
      throw new RunnerRefusedError(`the image ${settings.image} could not isolate the network of the run (${why})`);
    }
    throw new RunnerRefusedError(`the network of the run was not isolated within ${keeperWaitMs / 1000} s on ${host}`);
  }

  async start(runId: string, cwd: string, phase: Parameters<Runner['start']>[2]): Promise<void> {
    const { api, fleetId, settings } = this.#options;
    const name = containerName(runId, phase.name);
    const unclaimed = unclaimedName(name);
    await this.#orRefused(async () => {
      await taken(api.create(unclaimed, phaseBody({ runId, fleetId, settings, cwd, phase })));
      // Only the gateway that renames the container starts it, however late another gateway resumes.
      if (!(await taken(api.rename(unclaimed, name)))) return;
      await api.start(name);
    });
  }

  async observe(runId: string, phase: string): Promise<PhaseState> {
    const name = containerName(runId, phase);
    const seen = this.#seen.get(name);
    if (seen !== undefined) {
      const isCurrent = seen.log !== null && !seen.log.isOver && Date.now() - seen.atMs < freshMs;
      if (isCurrent || seen.state.kind === 'ended' || seen.state.kind === 'lost') return seen.state;
    }
    const detail = await this.#inspect(name);
    if (detail === null) return { kind: 'absent' };
    const state = this.#stateOf(detail);
    this.#seen.set(name, { id: detail.Id, atMs: Date.now(), state, log: seen?.log ?? null });
    return state;
  }

  async #inspect(name: string): Promise<ContainerDetail | null> {
    const { api } = this.#options;
    return (await api.inspect(name)) ?? api.inspect(interruptedName(name));
  }

  #stateOf({ State: { Status: status, ExitCode: code, OOMKilled: isOom } }: ContainerDetail): PhaseState {
    const exitCode = code ?? 0;
    if (status === 'exited' && exitCode !== lostExitCode) {
      const mebibytes = Math.round(this.#options.settings.memoryBytes / 1_048_576);
      const because = `it used more than ${mebibytes} MiB of memory, the limit for a run (HEADGATE_RUNS_MEMORY_MIB)`;
      return { kind: 'ended', exitCode, ...(isOom === true && exitCode !== 0 && { because }) };
    }
    // A container with its final name that never ran: the gateway that renamed it stopped, or could not start it.
    return { kind: ['created', 'exited', 'dead'].includes(status) ? 'lost' : 'running' };
  }

  async readLog(runId: string, phase: string, offset: number): Promise<Buffer> {
    const name = containerName(runId, phase);
    const state = await this.observe(runId, phase);
    const seen = this.#seen.get(name);
    if (state.kind === 'absent' || seen === undefined) return Buffer.alloc(0);
    seen.log ??= new PhaseLog((signal) => this.#options.api.followLog(seen.id, null, signal));
    try {
      return await seen.log.read(offset, state.kind !== 'running');
    } catch (error) {
      // The next read opens a new connection.
      seen.log.close();
      seen.log = null;
      throw error;
    }
  }

  async interrupt(runId: string, phase: string): Promise<void> {
    const { api } = this.#options;
    const name = containerName(runId, phase);
    const interrupted = interruptedName(name);
    if (await taken(api.rename(name, interrupted))) await api.kill(interrupted, 'SIGINT');
  }

  async kill(runId: string, phase: string): Promise<void> {
    const state = await this.observe(runId, phase);
    // All other processes of a container end with its first one.
    if (state.kind !== 'running') return;
    const id = this.#seen.get(containerName(runId, phase))?.id;
    if (id !== undefined) await this.#options.api.kill(id, 'SIGKILL');
  }

  async readFile(runId: string, path: string, bytesMax: number): Promise<Buffer | null> {
    const keeper = containerName(runId, keeperPhase);
    const read = await this.#options.api.readFile(keeper, `${workPath}/${path}`, bytesMax);
    if (read === 'too large') throw new FileTooLargeError(posix.basename(path), bytesMax);
    return read;
  }

  locate(runId: string, path: string): string {
    return `${this.#options.host}, container ${containerName(runId, keeperPhase)}: ${workPath}/${path}`;
  }

  /** Empties a file, because the Engine API cannot remove one. Folders in the archive replace links in the path. */
  async removeFile(runId: string, path: string): Promise<void> {
    const empty = await packArchive([{ path: `run/${path}`, bytes: Buffer.alloc(0) }], owner);
    await this.#options.api.putArchive(containerName(runId, keeperPhase), volumePath, empty);
  }

  async remove(runId: string): Promise<void> {
    const { api, fleetId, settings } = this.#options;
    const found = await api.list([`${labels.runs}=${fleetId}`, `${labels.run}=${runId}`]);
    const isKeeper = ({ Labels: marks }: (typeof found)[number]): boolean => marks?.[labels.phase] === keeperPhase;
    for (const { Id: id } of found.filter((container) => !isKeeper(container))) await api.remove(id, true);
    // The keeper's volume is removed with it, once no phase uses it.
    for (const { Id: id } of found.filter(isKeeper)) await api.remove(id, true);
    if (settings.network === null) await api.removeNetwork(networkName(runId));
    const prefix = `${networkName(runId)}-`;
    for (const [name, { log }] of this.#seen) {
      if (!name.startsWith(prefix)) continue;
      log?.close();
      this.#seen.delete(name);
    }
  }

  async list(): Promise<readonly string[]> {
    const { api, fleetId } = this.#options;
    const wanted = [`${labels.runs}=${fleetId}`];
    const [containers, networks] = await Promise.all([api.list(wanted), api.networks(wanted)]);
    const ofContainers = containers.flatMap(({ Labels: marks }) => marks?.[labels.run] ?? []);
    const ofNetworks = networks.flatMap(({ Name: name }) => runOfNetwork(name) ?? []);
    return [...new Set([...ofContainers, ...ofNetworks])];
  }

  /**
   * Turns errors that the engine answers into refusals: only an engine that does not answer may answer differently
   * later.
   */
  async #orRefused(make: () => Promise<void>): Promise<void> {
    try {
      await make();
    } catch (error) {
      if (!(error instanceof DockerError) || error.status === null) throw error;
      throw new RunnerRefusedError(`the Docker engine of ${this.#options.host} rejected the run`, { cause: error });
    }
  }
}

/** @returns false if the name is in use, or the container with the old name does not exist */
async function taken(call: Promise<unknown>): Promise<boolean> {
  try {
    await call;
    return true;
  } catch (error) {
    if (error instanceof DockerError && (error.status === 404 || error.status === 409)) return false;
    throw error;
  }
}
