import { setTimeout as pause } from 'node:timers/promises';
import {
  connectHost,
  type DockerApi,
  findOwnContainer,
  type HostConnection,
  type RegistryLogins,
  type SwarmService,
} from '#base/docker/docker.ts';
import { isLate } from '#base/is-late.ts';
import type { Log } from '#base/log.ts';
import { createSerial } from '#base/queues/queues.ts';
import type { SwarmSettings } from '#core/catalog/catalog.ts';
import { joinNetworks, labels } from '#core/fleet/drivers/docker/docker.ts';
import type {
  EngineDriver,
  EngineSpec,
  LogOptions,
  Observation,
  StartRequest,
  StopRequest,
} from '#core/fleet/drivers/driver.ts';
import { type Fence, FenceLostError, requireFence } from '#core/fleet/drivers/fence.ts';
import { type ContainerLog, containerLogLines, lastLogLines } from '#core/fleet/drivers/log-without-probes.ts';
import { observedStart, type PendingStart } from '#core/fleet/drivers/pending-start.ts';
import type { ReplicaExit } from '#core/fleet/drivers/replica-exit.ts';
import { isStopRequested } from './exit.ts';
import { type ObservedServices, observeServices } from './observe.ts';
import { overlayName, serviceSpecHash, swarmPlacement } from './service.ts';
import { removeReplica, removeSecrets, removeStraySecrets, startService } from './start.ts';

export interface SwarmDriverOptions {
  readonly swarm: SwarmSettings;
  /** Identifies the installation: services of another installation in the same swarm are neither touched nor seen. */
  readonly fleetId: string;
  /** Source of the replicas' keys; shared by all gateways of the installation. */
  readonly fleetSecret: string;
  /** The gateway's environment, for the references of engine files. */
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly logins: RegistryLogins;
  readonly log: Log;
  /** Id of the container that this gateway runs in; null if none. Detected if absent. */
  readonly selfContainer?: string | null;
}

const observeWaitMs = 3000;
const openWaitMs = 15_000;
/** Tasks report only to managers, which emit no events for them: starting and stopping replicas are polled. */
const unsettledObserveMs = 500;
/** Tasks leave a network a moment after their service is removed. */
const networkTriesMax = 10;
const networkRetryMs = 500;

/**
 * Creates the driver that runs engines as services of a Docker Swarm, one service with one task per replica. The swarm
 * chooses nodes and GPUs; the fleet decides what runs and routes to each task itself. The swarm is not contacted before
 * an engine needs it.
 */
export function createSwarmDriver(options: SwarmDriverOptions): EngineDriver {
  return new SwarmDriver(options);
}

class SwarmDriver implements EngineDriver {
  readonly #options: SwarmDriverOptions;
  readonly #selfContainer: string | null;
  readonly #connection: HostConnection;
  /** Never shrinks: replicas of an engine without a file must still be stopped. */
  readonly #knownEngines = new Set<string>();
  /** Replicas that the swarm rejected, by id. */
  readonly #failures = new Map<string, PendingStart>();
  readonly #exits = new Map<string, ReplicaExit>();
  /** Serializes changes of one engine's network. */
  readonly #serial = createSerial();
  #seen: ObservedServices = { replicas: [], orphans: [], networks: new Set() };
  #reading: Promise<void> | null = null;
  #begun = 0;
  #applied = 0;
  #isReady = false;
  #reachable = false;
  /** Each trouble is logged once. */
  #trouble: string | null = null;
  #joinTrouble: string | null = null;
  #listener: () => void = () => undefined;
  #timer: NodeJS.Timeout | undefined;

  constructor(options: SwarmDriverOptions) {
    this.#options = options;
    this.#selfContainer = options.selfContainer === undefined ? findOwnContainer() : options.selfContainer;
    const { docker } = options.swarm;
    const manager = { name: 'swarm', docker, address: null, pools: [], gpus: null, gpuAccess: null, probeImage: null };
    this.#connection = connectHost(manager);
  }

  get #api(): DockerApi {
    return this.#connection.api;
  }

  specOf(definition: EngineSpec['definition']): EngineSpec {
    const { env, fleetSecret } = this.#options;
    return { engineId: definition.id, hash: serviceSpecHash(definition, env, fleetSecret), definition };
  }

  async open(specs: readonly EngineSpec[]): Promise<void> {
    this.setSpecs(specs);
    if (this.#isWanted()) await isLate((this.#reading ??= this.#read()), openWaitMs);
  }

  setSpecs(specs: readonly EngineSpec[]): void {
    for (const { engineId } of specs) this.#knownEngines.add(engineId);
  }

  #isWanted(): boolean {
    return this.#options.swarm.isNamed || this.#knownEngines.size > 0;
  }

  async observe(): Promise<Observation> {
    if (!this.#isWanted()) return { replicas: [], hosts: [], orphans: [] };
    const late = await isLate((this.#reading ??= this.#read()), observeWaitMs);
    if (late && this.#reachable) this.#noteTrouble('it does not answer');
    const { replicas, orphans } = this.#seen;
    const failed = [...this.#failures.values()].map(observedStart);
    const isUnsettled = replicas.some(({ state }) => state === 'creating' || state === 'stopping');
    if (isUnsettled) this.#observeAgain();
    return {
      replicas: [...replicas.filter(({ replica: { id } }) => !this.#failures.has(id)), ...failed],
      // Nodes and GPUs are managed by the swarm and its operator.
      hosts: [
        {
          name: swarmPlacement.host,
          pools: [],
          reachable: this.#reachable,
          ...(this.#trouble !== null && { trouble: this.#trouble }),
          gpus: [],
        },
      ],
      orphans,
    };
  }

  #observeAgain(): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#listener(), unsettledObserveMs).unref();
  }

  async #read(): Promise<void> {
    const sequence = (this.#begun += 1);
    const { log } = this.#options;
    try {
      if (!this.#isReady) await this.#api.negotiate();
      this.#isReady = true;
      const seen = await observeServices({
        ...this.#options,
        api: this.#api,
        knownEngines: this.#knownEngines,
        exits: this.#exits,
      });
      await this.#join(seen);
      if (sequence < this.#applied) return;
      this.#applied = sequence;
      this.#seen = seen;
      if (!this.#reachable) log.info('the manager of the swarm is reachable');
      this.#reachable = true;
      this.#trouble = null;
    } catch (error) {
      if (sequence >= this.#applied) this.#noteTrouble(error instanceof Error ? error.message : String(error));
    } finally {
      // Later calls must read again.
      if (this.#begun === sequence) this.#reading = null;
    }
  }

  #noteTrouble(trouble: string): void {
    this.#reachable = false;
    this.#isReady = false;
    if (this.#trouble === trouble) return;
    this.#trouble = trouble;
    this.#options.log.warn(
      { trouble },
      'cannot reach the manager of the swarm: no engine starts or stops there; replicas that answer keep serving',
    );
  }

  /**
   * Joins the networks of running replicas. A failure is only logged: the probes of these replicas then fail as well.
   */
  async #join({ networks, replicas }: ObservedServices): Promise<void> {
    const { swarm, fleetId } = this.#options;
    if (swarm.network === 'host') return;
    let trouble: string | null = null;
    try {
      const own = this.#selfContainer;
      const joined = own === null ? null : await joinNetworks(this.#api, own, networks);
      if (own !== null && joined !== null) {
        const inUse = new Set(replicas.map(({ replica: { engineId } }) => overlayName(fleetId, engineId)));
        const known = [...this.#knownEngines].map((engineId) => overlayName(fleetId, engineId));
        // The leader can remove a network only after all gateways have left it.
        const over = known.filter((name) => joined.has(name) && !inUse.has(name));
        for (const name of over) await this.#api.disconnect(name, own);
      } else if (networks.size > 0) {
        trouble = 'the gateway does not run in a container on this manager: set network: host';
      }
    } catch (error) {
      trouble = error instanceof Error ? error.message : String(error);
    }
    if (trouble !== null && trouble !== this.#joinTrouble) {
      this.#options.log.warn(
        { trouble },
        'the gateway cannot join the networks of engines in the swarm; requests to their replicas fail until the gateway can',
      );
    }
    this.#joinTrouble = trouble;
  }

  async start(request: StartRequest): Promise<void> {
    const { replicaId, spec, fence } = request;
    const { log } = this.#options;
    if (this.#failures.has(replicaId) || this.#seen.replicas.some(({ replica: { id } }) => id === replicaId)) return;
    await requireFence(fence);
    const exit = await this.#serial(spec.engineId, async () => {
      await this.#removeStrays(spec.engineId, fence);
      return startService({ ...this.#options, api: this.#api, request });
    });
    if (exit === null) log.info({ engine: spec.engineId, replica: replicaId }, 'started an engine as a service');
    else this.#failures.set(replicaId, { request, exit, progress: '' });
    this.#changed();
  }

  /**
   * Removes secrets of starts that lost their fence midway. On failure they only take up space, and the next start
   * retries.
   */
  async #removeStrays(engineId: string, fence: Fence): Promise<void> {
    const { fleetId, log } = this.#options;
    try {
      await removeStraySecrets({ api: this.#api, fleetId, engineId }, fence);
    } catch (error) {
      if (error instanceof FenceLostError) throw error;
      log.warn(
        { engine: engineId, trouble: String(error) },
        'Docker secrets of aborted starts of an engine could not be removed from the swarm; they do no harm, and the next start of the engine removes them',
      );
    }
  }

  async stop(replicaId: string, { fence }: StopRequest): Promise<void> {
    await requireFence(fence);
    const service = await this.#locate(replicaId);
    if (service === null || isStopRequested(service)) return;
    await requireFence(fence);
    await this.#api.swarm.scaleService(service, 0);
    this.#changed();
  }

  async forget(replicaId: string, fence: Fence): Promise<void> {
    const { fleetId } = this.#options;
    const failed = this.#failures.get(replicaId);
    const service = await this.#locate(replicaId);
    await removeReplica({ api: this.#api, fleetId, replicaId }, fence);
    this.#failures.delete(replicaId);
    this.#changed();
    const engineId = service?.Spec.Labels?.[labels.engine] ?? failed?.request.spec.engineId;
    if (engineId !== undefined) await this.#serial(engineId, () => this.#leaveNetwork(engineId, fence));
  }

  /** Removes what an engine without a service has left, including remains of interrupted starts. */
  async #leaveNetwork(engineId: string, fence: Fence): Promise<void> {
    const { fleetId, log } = this.#options;
    const name = overlayName(fleetId, engineId);
    const remaining = await this.#api.swarm.listServices([
      `${labels.fleet}=${fleetId}`,
      `${labels.engine}=${engineId}`,
    ]);
    if (remaining.length > 0) return;
    await removeSecrets(this.#api, [`${labels.fleet}=${fleetId}`, `${labels.engine}=${engineId}`], fence);
    for (let tries = 1; ; tries += 1) {
      try {
        const network = await this.#api.inspectNetwork(name);
        if (network === null || network.Labels?.[labels.fleet] !== fleetId) return;
        const gateways = new Set([...gatewaysIn(network.Containers), ...(await this.#api.joinedTo(name))]);
        for (const container of gateways) {
          await requireFence(fence);
          await this.#api.disconnect(name, container);
        }
        await requireFence(fence);
        await this.#api.removeNetwork(name);
        return;
      } catch (error) {
        if (error instanceof FenceLostError) throw error;
        if (tries < networkTriesMax) await pause(networkRetryMs);
        else {
          // A network that stays costs nothing, and the next start uses it again.
          log.warn(
            { engine: engineId, trouble: String(error) },
            'the network of a stopped engine could not be removed from the swarm; it does no harm, and the next start uses it again',
          );
          return;
        }
      }
    }
  }

  /** Returns null: the memory use of devices is known only on the nodes. */
  async readGpus(): Promise<null> {
    return null;
  }

  async probeGpus(): Promise<null> {
    return null;
  }

  /** The manager sees neither the disk nor the network of a task's node. */
  async activity(): Promise<null> {
    return null;
  }

  async *logs(replicaId: string, options: LogOptions): AsyncGenerator<string> {
    const service = await this.#locate(replicaId);
    if (service === null || isStopRequested(service)) {
      yield* lastLogLines(this.#failures.get(replicaId)?.exit?.logTail ?? '', options.tailLines);
      return;
    }
    const { swarm } = this.#api;
    const log: ContainerLog = {
      tail: (lines) => swarm.serviceLogTail(service.ID, lines),
      follow: (lines) => swarm.followServiceLog(service.ID, lines, options.signal),
    };
    yield* containerLogLines(log, options);
  }

  onChange(listener: () => void): void {
    this.#listener = listener;
  }

  async close(): Promise<void> {
    this.#listener = () => undefined;
    clearTimeout(this.#timer);
    this.#connection.close();
  }

  async #locate(replicaId: string): Promise<SwarmService | null> {
    const wanted = [`${labels.fleet}=${this.#options.fleetId}`, `${labels.replica}=${replicaId}`];
    const [service] = await this.#api.swarm.listServices(wanted);
    return service ?? null;
  }

  #changed(): void {
    // A read that is running may be older than the change.
    this.#reading = null;
    this.#listener();
  }
}

/** Returns the ids of containers in a network, without the network's own endpoint of each node. */
function gatewaysIn(containers: Readonly<Record<string, unknown>> | null | undefined): string[] {
  return Object.keys(containers ?? {}).filter((id) => /^[0-9a-f]{64}$/.test(id));
}
