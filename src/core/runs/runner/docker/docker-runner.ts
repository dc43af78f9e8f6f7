import { posix } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { type ContainerDetail, demultiplex, type DockerApi, DockerError, packArchive } from '#base/docker/docker.ts';
import { closedLine } from '#base/closed-network.ts';
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
  /** As an operator calls the machine. */
  readonly host: string;
  /** Id of its Docker engine. */
  readonly engineId: string;
  readonly fleetId: string;
  readonly settings: ContainerSettings;
}

const networkTries = 5;
const networkPauseMs = 1000;
const isNetworkAway = ({ status, reason }: DockerError): boolean =>
  status === 404 && /^network \S+ not found/.test(reason);

/** Closing a network takes a moment; a machine that is full takes several. */
const keeperWaitMs = 30_000;
const keeperLookMs = 30;
/** How old may be what is known of a container whose output goes on. */
const freshMs = 2000;
/** Docker's own exit code for a container that ended while the engine was away. */
const lostExitCode = 255;

interface Seen {
  readonly id: string;
  readonly atMs: number;
  readonly state: PhaseState;
  /** As a rule it is there for whatever was started. */
  log: PhaseLog | null;
}

/** Runs of one Docker engine: a container for each phase, and one that keeps volume and network for all of them. */
export function createDockerRunner(options: DockerRunnerOptions): Runner {
  return new DockerRunner(options);
}

class DockerRunner implements Runner {
  readonly kind = 'docker';
  readonly place: string;
  readonly #options: DockerRunnerOptions;
  /** By the name of the container. */
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
    // Whoever slept while another gateway took the run over must not take its folder away.
    const made = await api.list([`${labels.runs}=${fleetId}`, `${labels.run}=${runId}`]);
    const hasBegun = made.some(({ Labels: marks }) => marks?.[labels.phase] !== keeperPhase);
    if (hasBegun) throw new Error('a phase of the run has begun');
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
    // The folder is the run's own, which the root of a volume is not.
    const folders = ['run', 'run/home'].map((path) => ({ path, bytes: null }));
    const inRun = files.map((file) => ({ ...file, path: `run/${file.path}` }));
    await api.putArchive(keeper, volumePath, await packArchive([...folders, ...inRun], owner));
    await api.start(keeper);
    await this.#untilClosed(keeper);
  }

  /** A node of a Swarm gives up a network with the last container on it: who comes meanwhile does not find it. */
  async #whileNetworkComes(runId: string, make: () => Promise<void>): Promise<void> {
    for (let triesLeft = this.#options.settings.network === null ? 0 : networkTries; ; triesLeft -= 1) {
      try {
        return await make();
      } catch (error) {
        if (triesLeft === 0 || !(error instanceof DockerError) || !isNetworkAway(error)) throw error;
      }
      await pause(networkPauseMs);
      await this.remove(runId);
    }
  }

  /** Before its network is closed nothing of a run may begin. */
  async #untilClosed(keeper: string): Promise<void> {
    const { api, settings, host } = this.#options;
    for (const endMs = Date.now() + keeperWaitMs; Date.now() < endMs; await pause(keeperLookMs)) {
      const said = demultiplex(await api.logTail(keeper, 20));
      if (said.split('\n').includes(closedLine)) return;
      const status = (await api.inspect(keeper))?.State.Status;
      if (status === 'running' || status === 'created') continue;
      const why = demultiplex(await api.logTail(keeper, 1)).trim();
      throw new RunnerRefusedError(`the image ${settings.image} could not close the network of the run (${why})`);
    }
    throw new RunnerRefusedError(`the network of the run was not closed in ${keeperWaitMs / 1000} s on ${host}`);
  }

  async start(runId: string, cwd: string, phase: Parameters<Runner['start']>[2]): Promise<void> {
    const { api, fleetId, settings } = this.#options;
    const name = containerName(runId, phase.name);
    const unclaimed = unclaimedName(name);
    await this.#orRefused(async () => {
      await taken(api.create(unclaimed, phaseBody({ runId, fleetId, settings, cwd, phase })));
      // Whoever gives it its name starts it, and nobody else, however late somebody wakes up.
      if (!(await taken(api.rename(unclaimed, name)))) return;
      await api.start(name);
    });
  }

  async observe(runId: string, phase: string): Promise<PhaseState> {
    const name = containerName(runId, phase);
    const seen = this.#seen.get(name);
    if (seen !== undefined) {
      const goesOn = seen.log !== null && !seen.log.isOver && Date.now() - seen.atMs < freshMs;
      if (goesOn || seen.state.kind === 'ended' || seen.state.kind === 'lost') return seen.state;
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
      const because = `it took more than the ${mebibytes} MiB of memory that a run has (HEADGATE_RUNS_MEMORY_MIB)`;
      return { kind: 'ended', exitCode, ...(isOom === true && exitCode !== 0 && { because }) };
    }
    // One that has its name and never ran: whoever gave it that is gone, or could not start it.
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
      // The next reader connects anew.
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
    // With the first process of a container all others have ended.
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

  /** Nothing of the Engine API removes a file: it is emptied. Folders of the archive take the place of links, if any. */
  async removeFile(runId: string, path: string): Promise<void> {
    const empty = await packArchive([{ path: `run/${path}`, bytes: Buffer.alloc(0) }], owner);
    await this.#options.api.putArchive(containerName(runId, keeperPhase), volumePath, empty);
  }

  async remove(runId: string): Promise<void> {
    const { api, fleetId, settings } = this.#options;
    const found = await api.list([`${labels.runs}=${fleetId}`, `${labels.run}=${runId}`]);
    const isKeeper = ({ Labels: marks }: (typeof found)[number]): boolean => marks?.[labels.phase] === keeperPhase;
    for (const { Id: id } of found.filter((container) => !isKeeper(container))) await api.remove(id, true);
    // Its volume goes with it, once no phase has it.
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

  /** What an engine answers is an answer: only one that says nothing may say something else later. */
  async #orRefused(make: () => Promise<void>): Promise<void> {
    try {
      await make();
    } catch (error) {
      if (!(error instanceof DockerError) || error.status === null) throw error;
      throw new RunnerRefusedError(`the Docker engine of ${this.#options.host} refused the run`, { cause: error });
    }
  }
}

/** @returns false where the name is taken, or what bore it is not there any more */
async function taken(call: Promise<unknown>): Promise<boolean> {
  try {
    await call;
    return true;
  } catch (error) {
    if (error instanceof DockerError && (error.status === 404 || error.status === 409)) return false;
    throw error;
  }
}
