import { createHash } from 'node:crypto';
import { type ContainerSummary, DockerError, findOwnContainer, type RegistryLogins } from '#base/docker/docker.ts';
import { AppError } from '#base/errors.ts';
import { isLate } from '#base/is-late.ts';
import type { Log } from '#base/log.ts';
import { createSerial } from '#base/queues/queues.ts';
import type { DockerHostSettings } from '#core/catalog/catalog.ts';
import { containerSettings, containerSpecHash } from '#core/fleet/drivers/container-command.ts';
import type {
  EngineDriver,
  EngineSpec,
  GpuUse,
  LogOptions,
  Observation,
  ObservedReplica,
  Placement,
  StartActivity,
  StartRequest,
  StopRequest,
} from '#core/fleet/drivers/driver.ts';
import { type Fence, FenceLostError, requireFence } from '#core/fleet/drivers/fence.ts';
import type { ReadFreeBytes } from '#core/fleet/drivers/free-disk.ts';
import { type ContainerLog, containerLogLines, lastLogLines } from '#core/fleet/drivers/log-without-probes.ts';
import { observedStart } from '#core/fleet/drivers/pending-start.ts';
import { failedStart, startErrors } from '#core/fleet/drivers/replica-exit.ts';
import { type ProbeOptions, probeUse, readUse, reportsUse } from './gpus.ts';
import { labels, isStoppingName, stoppingName } from './labels.ts';
import { removeNetwork } from './network.ts';
import { nameOf } from './observe.ts';
import { createObservedHost, type HostView, type ObservedHost } from './observed-host.ts';
import { launch, type Launch } from './start.ts';

export { containerLog, droppedCapabilities, mountsOf, ulimitsOf } from './container.ts';
export { apiKeyOf, containerName, labels, labelsOf, type Marks, networkName, readMarks } from './labels.ts';
export { joinNetworks } from './network.ts';
export { refusedStart, startErrorCode } from './start-error-code.ts';

export interface DockerDriverOptions {
  readonly hosts: readonly DockerHostSettings[];
  /** Identifies the installation: containers of another installation on the same hosts are neither touched nor seen. */
  readonly fleetId: string;
  /** Source of the replicas' keys; shared by all gateways of the installation. */
  readonly fleetSecret: string;
  /** The gateway's environment, for the references of engine files. */
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly logins: RegistryLogins;
  readonly log: Log;
  /** Id of the container that this gateway runs in; null if none. Detected if absent. */
  readonly selfContainer?: string | null;
  /** Reads the disks of this machine if absent. */
  readonly readFreeBytes?: ReadFreeBytes;
}

export interface StoredImage {
  readonly name: string;
  readonly host: string;
  readonly bytes: number;
}

/** The images on the hosts of the driver. */
export interface ImageStore {
  /** Returns which of these images the hosts have that answer, except those that hosts.yaml names. */
  storedImages(names: readonly string[]): Promise<readonly StoredImage[]>;
  /** @throws AppError conflict if a container uses the image, or the host rejects the deletion */
  removeImage(host: string, name: string): Promise<void>;
}

const progressIntervalMs = 1000;
const openWaitMs = 15_000;
/** Lines at the end of a log that show whether the log has grown. */
const activityLines = 20;

/**
 * Creates the driver that runs engines as containers, on one or several Docker engines. They do not depend on this
 * process.
 */
export function createDockerDriver(options: DockerDriverOptions): EngineDriver & ImageStore {
  return new DockerDriver(options);
}

class DockerDriver implements EngineDriver, ImageStore {
  readonly #options: DockerDriverOptions;
  readonly #hosts = new Map<string, ObservedHost>();
  /** Starts by replica id. */
  readonly #launches = new Map<string, Launch>();
  /** Replicas whose container this gateway is stopping. */
  readonly #stopping = new Set<string>();
  /** Never shrinks: replicas of an engine without a file must still be stopped. */
  readonly #knownEngines = new Set<string>();
  /** Serializes changes of one engine's network on one host. */
  readonly #serial = createSerial();
  #specs: readonly EngineSpec[] = [];
  #epoch = 0n;
  #changes = 0;
  #listener: () => void = () => undefined;
  #notifiedAtMs = 0;

  constructor(options: DockerDriverOptions) {
    this.#options = options;
    const { hosts, fleetId, fleetSecret, log } = options;
    const selfContainer = options.selfContainer === undefined ? findOwnContainer() : options.selfContainer;
    for (const settings of hosts) {
      const host = createObservedHost({
        settings,
        fleetId,
        fleetSecret,
        selfContainer,
        log,
        engineImages: () => this.#specs.map(({ definition }) => containerSettings(definition).image),
        knownEngines: this.#knownEngines,
        epoch: () => this.#epoch,
        onChange: () => this.#listener(),
        namesake: (engineId) => this.#entryBefore(settings.name, engineId),
      });
      this.#hosts.set(settings.name, host);
    }
  }

  #entryBefore(name: string, engineId: string): string | null {
    for (const [other, host] of this.#hosts) {
      if (other === name) return null;
      if (host.engineId() === engineId) return other;
    }
    return null;
  }

  specOf(definition: EngineSpec['definition']): EngineSpec {
    const { env, fleetSecret } = this.#options;
    return { engineId: definition.id, hash: containerSpecHash(definition, env, fleetSecret), definition };
  }

  async open(specs: readonly EngineSpec[]): Promise<void> {
    this.setSpecs(specs);
    const first = Promise.all([...this.#hosts.values()].map((host) => host.observe()));
    await isLate(first, openWaitMs);
  }

  setSpecs(specs: readonly EngineSpec[]): void {
    this.#specs = specs;
    for (const { engineId } of specs) this.#knownEngines.add(engineId);
  }

  async observe(epoch: bigint | null = null): Promise<Observation> {
    if (epoch !== null && epoch > this.#epoch) this.#epoch = epoch;
    let views: HostView[] = [];
    // A list read before a launch ended lacks its container, which would then look vanished.
    for (let round = 0; round < 3; round += 1) {
      const changes = this.#changes;
      await Promise.all([...this.#hosts.values()].map((host) => host.observe()));
      // Views are taken at one moment: a finding on one host may change the view of another.
      views = [...this.#hosts.values()].map((host) => host.view());
      if (changes === this.#changes) break;
    }
    const seen = views.flatMap(({ replicas }) => replicas).filter(({ replica: { id } }) => !this.#launches.has(id));
    return {
      replicas: [...seen, ...[...this.#launches.values()].map(observedStart)],
      hosts: views.map(({ report }) => report),
      orphans: views.flatMap(({ orphans }) => orphans),
    };
  }

  async start(request: StartRequest): Promise<void> {
    const { replicaId, placement, fence } = request;
    if (this.#launches.has(replicaId) || this.#seen(replicaId) !== null) return;
    await requireFence(fence);
    if (this.#launches.has(replicaId)) return;
    if (fence.epoch > this.#epoch) this.#epoch = fence.epoch;
    const started: Launch = {
      request,
      cancel: new AbortController(),
      progress: 'checking the image',
      reports: 0,
      exit: null,
      done: Promise.resolve(),
    };
    this.#launches.set(replicaId, started);
    const host = this.#hosts.get(placement.host);
    if (host !== undefined) started.done = this.#launch(started, host);
    else started.exit = failedStart(startErrors.hostUnreachable, `The Docker host ${placement.host} does not exist.`);
  }

  async #launch(started: Launch, host: ObservedHost): Promise<void> {
    const { request } = started;
    const { fleetId, fleetSecret, env, logins, log, readFreeBytes } = this.#options;
    const exit = await launch(started, {
      host,
      fleetId,
      fleetSecret,
      env,
      logins,
      readFreeBytes,
      exclusively: (engineId, work) => this.#serial(`${host.settings.name}\n${engineId}`, work),
      onProgress: () => this.#notifyProgress(),
    });
    const { replicaId, spec, placement } = request;
    started.exit = exit;
    if (exit === null) {
      this.#launches.delete(replicaId);
      const about = { engine: spec.engineId, replica: replicaId, host: placement.host };
      log.info(about, 'started an engine in a container');
    }
    this.#changed(host);
  }

  async stop(replicaId: string, { fence, graceMs }: StopRequest): Promise<void> {
    await requireFence(fence);
    const launching = this.#launches.get(replicaId);
    if (launching !== undefined) {
      launching.cancel.abort();
      await launching.done;
    }
    const found = await this.#locate(replicaId);
    if (found === null || this.#stopping.has(replicaId)) return;
    const { host, container } = found;
    const name = nameOf(container);
    if (!isStoppingName(name)) {
      await requireFence(fence);
      await host.api.rename(container.Id, stoppingName(name));
    }
    if (container.State === 'running' || container.State === 'paused') {
      await requireFence(fence);
      this.#stopping.add(replicaId);
      void host.api
        .stop(container.Id, graceMs)
        .catch((error: unknown) =>
          this.#options.log.warn(
            { replica: replicaId, trouble: String(error) },
            'a replica could not be stopped and keeps its GPUs and memory; the gateway retries',
          ),
        )
        .finally(() => {
          this.#stopping.delete(replicaId);
          this.#changed(host);
        });
    }
    this.#changed(host);
  }

  async forget(replicaId: string, fence: Fence): Promise<void> {
    const launched = this.#launches.get(replicaId);
    if (launched?.exit === null) throw new Error(`the replica ${replicaId} is starting and cannot be forgotten yet`);
    const found = await this.#locate(replicaId);
    if (found !== null) {
      await requireFence(fence);
      await found.host.api.remove(found.container.Id, false);
    }
    this.#launches.delete(replicaId);
    const host = found?.host ?? this.#hosts.get(launched?.request.placement.host ?? '');
    const engineId = found?.container.Labels?.[labels.engine] ?? launched?.request.spec.engineId;
    if (host !== undefined && engineId !== undefined) await this.#forgotten(host, engineId, fence);
  }

  async #forgotten(host: ObservedHost, engineId: string, fence: Fence): Promise<void> {
    this.#changed(host);
    await this.#serial(`${host.settings.name}\n${engineId}`, () => this.#leaveNetwork(host, engineId, fence));
  }

  async #leaveNetwork(host: ObservedHost, engineId: string, fence: Fence): Promise<void> {
    const { fleetId, log } = this.#options;
    const remaining = await host.api.list([`${labels.fleet}=${fleetId}`, `${labels.engine}=${engineId}`]);
    if (remaining.length > 0) return;
    try {
      await removeNetwork({ api: host.api, fleetId, engineId }, fence);
    } catch (error) {
      if (error instanceof FenceLostError) throw error;
      // A network that stays costs nothing, and the next start uses it again.
      log.warn(
        { engine: engineId, trouble: String(error) },
        'the Docker network of a stopped engine could not be removed; it does no harm, and the next start uses it again',
      );
    }
  }

  async readGpus(placement: Placement): Promise<readonly GpuUse[] | null> {
    const options = await this.#probeOptions(placement);
    return options === null ? null : readUse(options).catch(() => null);
  }

  /** @returns null if the use of these devices cannot be read */
  async #probeOptions({ host: name, gpuIds }: Placement): Promise<ProbeOptions | null> {
    const host = this.#hosts.get(name);
    if (host === undefined || gpuIds.length === 0 || !gpuIds.every(reportsUse)) return null;
    const image = await host.probeImage();
    if (image === null) return null;
    return { api: host.api, fleetId: this.#options.fleetId, image, access: host.gpuAccess(), gpuIds };
  }

  async probeGpus(placement: Placement): Promise<readonly GpuUse[] | null> {
    const options = await this.#probeOptions(placement);
    if (options === null) return null;
    try {
      return await probeUse(options);
    } catch (error) {
      this.#options.log.warn(
        { host: placement.host, image: options.image, trouble: String(error) },
        'the free GPU memory of a host could not be read; the engine starts without this check',
      );
      return null;
    }
  }

  async activity(replicaId: string): Promise<StartActivity | null> {
    const launching = this.#launches.get(replicaId);
    if (launching !== undefined) return { output: String(launching.reports), downloadedBytes: null };
    const found = await this.#locate(replicaId);
    if (found === null) return null;
    const { api } = found.host;
    const { Id: id } = found.container;
    const [lines, downloadedBytes] = await Promise.all([
      api.logTail(id, activityLines),
      api.receivedBytes(id).catch(() => null),
    ]);
    return { output: createHash('sha256').update(lines).digest('base64url'), downloadedBytes };
  }

  async *logs(replicaId: string, options: LogOptions): AsyncGenerator<string> {
    const found = await this.#locate(replicaId);
    if (found === null) {
      yield* lastLogLines(this.#launches.get(replicaId)?.exit?.logTail ?? '', options.tailLines);
      return;
    }
    const { container, host } = found;
    const log: ContainerLog = {
      tail: (lines) => host.api.logTail(container.Id, lines),
      follow: (lines) => host.api.followLog(container.Id, lines, options.signal),
    };
    yield* containerLogLines(log, options);
  }

  async storedImages(names: readonly string[]): Promise<readonly StoredImage[]> {
    const searches = [...this.#hosts.values()].flatMap((host) =>
      host.refusal() !== null
        ? []
        : names
            .filter((name) => name !== host.settings.probeImage)
            .map(async (name) => {
              const bytes = await host.api.imageBytes(name).catch(() => null);
              return bytes === null ? [] : [{ name, host: host.settings.name, bytes }];
            }),
    );
    return (await Promise.all(searches)).flat();
  }

  async removeImage(host: string, name: string): Promise<void> {
    try {
      await this.#hosts.get(host)?.api.removeImage(name);
    } catch (error) {
      if (!(error instanceof DockerError)) throw error;
      throw new AppError('conflict', { message: `The image ${name} could not be deleted on ${host}: ${error.reason}` });
    }
  }

  onChange(listener: () => void): void {
    this.#listener = listener;
  }

  async close(): Promise<void> {
    this.#listener = () => undefined;
    for (const { cancel } of this.#launches.values()) cancel.abort();
    await Promise.all([...this.#launches.values()].map(({ done }) => done));
    for (const host of this.#hosts.values()) host.close();
  }

  #seen(replicaId: string): ObservedHost | null {
    for (const host of this.#hosts.values()) {
      if (host.view().replicas.some(({ replica }: ObservedReplica) => replica.id === replicaId)) return host;
    }
    return null;
  }

  /** Returns the current container of a replica; unreachable hosts are skipped. */
  async #locate(replicaId: string): Promise<{ host: ObservedHost; container: ContainerSummary } | null> {
    const placed = this.#launches.get(replicaId)?.request.placement.host;
    const known = (placed === undefined ? undefined : this.#hosts.get(placed)) ?? this.#seen(replicaId);
    const wanted = [`${labels.fleet}=${this.#options.fleetId}`, `${labels.replica}=${replicaId}`];
    if (known !== null) {
      const [container] = await known.api.list(wanted);
      return container === undefined ? null : { host: known, container };
    }
    const searches = [...this.#hosts.values()].map(async (host) => {
      const [container] = await host.api.list(wanted).catch(() => []);
      return container === undefined ? null : { host, container };
    });
    return (await Promise.all(searches)).find((found) => found !== null) ?? null;
  }

  #changed(host: ObservedHost): void {
    this.#changes += 1;
    host.touch();
    this.#listener();
  }

  #notifyProgress(): void {
    const now = Date.now();
    if (now - this.#notifiedAtMs < progressIntervalMs) return;
    this.#notifiedAtMs = now;
    this.#listener();
  }
}
