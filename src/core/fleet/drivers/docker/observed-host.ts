import { finished } from 'node:stream/promises';
import { setTimeout as pause } from 'node:timers/promises';
import { connectHost, type DockerApi, type HostConnection } from '#base/docker/docker.ts';
import { isLate } from '#base/is-late.ts';
import type { Log } from '#base/log.ts';
import type { DockerHostSettings, GpuAccess } from '#core/catalog/catalog.ts';
import type { Gpu, HostReport } from '#core/fleet/drivers/driver.ts';
import { gpusOfInfo, isOfNvidia, probeInventory } from './gpus.ts';
import { joinNetworks } from './network.ts';
import { observeContainers, type ObservedContainers, type ObserveMemory } from './observe.ts';
import { labels } from './labels.ts';

interface EventsOptions {
  readonly api: DockerApi;
  readonly fleetId: string;
  readonly signal: AbortSignal;
  /** Called for every event, and whenever the stream begins or ends: changes without a stream are unknown. */
  readonly onEvent: () => void;
}

const retryMsMin = 200;
const retryMsMax = 5000;

/** Watches a Docker engine's events until the signal aborts, and reconnects whenever the stream breaks. */
async function watchEvents({ api, fleetId, signal, onEvent }: EventsOptions): Promise<void> {
  let retryMs = retryMsMin;
  while (!signal.aborted) {
    try {
      const stream = await api.events([`${labels.fleet}=${fleetId}`], signal);
      retryMs = retryMsMin;
      onEvent();
      stream.on('data', onEvent);
      await finished(stream, { writable: false });
    } catch {
      // The Docker engine is unreachable, or the signal ended the stream; the next observation shows which.
    }
    if (signal.aborted) return;
    onEvent();
    await pause(retryMs, undefined, { signal }).catch(() => undefined);
    retryMs = Math.min(retryMs * 2, retryMsMax);
  }
}

export interface HostOptions {
  readonly settings: DockerHostSettings;
  readonly fleetId: string;
  readonly fleetSecret: string;
  readonly selfContainer: string | null;
  readonly log: Log;
  /** Images that may contain `nvidia-smi`, used to count GPUs. */
  readonly engineImages: () => readonly string[];
  readonly knownEngines: ReadonlySet<string>;
  readonly epoch: () => bigint;
  readonly onChange: () => void;
  /** Returns the name of an earlier entry whose Docker engine has this id; null if there is none. */
  readonly namesake: (engineId: string) => string | null;
}

/** A host as last observed. */
export interface HostView extends ObservedContainers {
  readonly report: HostReport;
}

export interface ObservedHost {
  readonly settings: DockerHostSettings;
  readonly api: DockerApi;
  /** Id of the host's Docker engine, as last reported; null if unknown. */
  engineId(): string | null;
  /** Why the host must not be used although it may answer; null if there is no such reason. */
  refusal(): string | null;
  gpuAccess(): GpuAccess;
  /** Folder of the Docker engine's images, if it is on this machine and visible to this process; else null. */
  imagesFolder(): string | null;
  /** Image in which `nvidia-smi` runs; null if the host has none. */
  probeImage(): Promise<string | null>;
  /** Observes the host; if it does not answer soon, returns the last view. Never throws. */
  observe(): Promise<HostView>;
  /** Returns the last view. */
  view(): HostView;
  /** Marks the host as changed: a read that is running may be older than the change. */
  touch(): void;
  close(): void;
}

/** A host that hangs must not delay the others; its answer is used when it arrives. */
const observeWaitMs = 3000;
const inventoryRetryMs = 60_000;

interface HostState {
  engineId: string | null;
  imagesFolder: string | null;
  reachable: boolean;
  /** True if the API version is negotiated and the GPUs are known. */
  ready: boolean;
  access: GpuAccess;
  gpus: readonly Gpu[];
  /** When to count GPUs again; Unix ms, null if they are known. */
  inventoryAt: number | null;
  /** True if the gateway's own container does not run on the host. */
  isElsewhere: boolean;
  seen: ObservedContainers;
  /** The running read, if it began after the last change. */
  reading: Promise<void> | null;
  begun: number;
  applied: number;
  /** Why the last read failed; logged once. */
  trouble: string | null;
}

interface Context extends HostOptions {
  readonly connection: HostConnection;
  readonly memory: ObserveMemory;
  readonly state: HostState;
}

export function createObservedHost(options: HostOptions): ObservedHost {
  const { settings, fleetId, onChange } = options;
  const connection = connectHost(settings);
  const { api } = connection;
  const state: HostState = {
    engineId: null,
    imagesFolder: null,
    reachable: false,
    ready: false,
    access: settings.gpuAccess ?? 'nvidia',
    gpus: settings.gpus ?? [],
    inventoryAt: 0,
    isElsewhere: false,
    seen: nothing,
    reading: null,
    begun: 0,
    applied: 0,
    trouble: null,
  };
  const memory: ObserveMemory = { exits: new Map(), unstartedSince: new Map() };
  const context: Context = { ...options, connection, memory, state };
  const closing = new AbortController();
  const touch = (): void => {
    state.reading = null;
  };
  const view = (): HostView => viewOf(context);
  const onEvent = (): void => {
    touch();
    onChange();
  };
  void watchEvents({ api, fleetId, signal: closing.signal, onEvent });

  return {
    settings,
    api,
    engineId: () => state.engineId,
    refusal: () => refusalOf(context),
    gpuAccess: () => state.access,
    imagesFolder: () => state.imagesFolder,
    probeImage: () => findProbeImage(context),
    view,
    touch,
    async observe() {
      const late = await isLate((state.reading ??= readHost(context)), observeWaitMs);
      if (late && state.reachable) noteTrouble(context, 'it does not answer');
      return view();
    },
    close() {
      closing.abort();
      connection.close();
    },
  };
}

const nothing: ObservedContainers = { replicas: [], orphans: [], networks: new Set() };

function viewOf(context: Context): HostView {
  const { state, settings } = context;
  const { name, pools } = settings;
  const { gpus } = state;
  const refusal = refusalOf(context);
  // The entry that is used already reports this machine's replicas.
  if (refusal !== null) return { ...nothing, report: { name, pools, reachable: false, trouble: refusal, gpus } };
  const { reachable } = state;
  const trouble = reachable || state.trouble === null ? {} : { trouble: state.trouble };
  return { ...state.seen, report: { name, pools, reachable, ...trouble, gpus } };
}

/** Two entries for one machine would both assign its GPUs, so only the first entry is used. */
function refusalOf({ state, namesake }: Context): string | null {
  const other = state.engineId === null ? null : namesake(state.engineId);
  if (other === null) return null;
  return `it has the same Docker engine as ${other} (ID ${state.engineId}): hosts.yaml lists a machine twice, or one machine is a copy of the other`;
}

class NamedTwice extends Error {}

async function readHost(context: Context): Promise<void> {
  const { state, connection, settings } = context;
  const sequence = (state.begun += 1);
  try {
    if (!state.ready) await agree(context);
    const refusal = refusalOf(context);
    if (refusal !== null) throw new NamedTwice(refusal);
    await countGpus(context);
    const seen = await observeContainers({
      ...context,
      hostName: settings.name,
      epoch: context.epoch(),
    });
    if (connection.joinsNetworks) await join(context, seen.networks);
    if (sequence < state.applied) return;
    state.applied = sequence;
    state.seen = seen;
    if (!state.reachable) context.log.info({ host: settings.name }, 'the Docker engine of a host is reachable');
    state.reachable = true;
    state.trouble = null;
  } catch (error) {
    if (sequence >= state.applied) noteError(context, error);
  } finally {
    // Later calls must read again.
    if (state.begun === sequence) state.reading = null;
  }
}

function noteError(context: Context, error: unknown): void {
  const isMistake = error instanceof NamedTwice;
  noteTrouble(context, error instanceof Error ? error.message : String(error), isMistake ? 'error' : 'warn');
}

const ignoredText = 'ignoring a host: correct hosts.yaml, which reaches one Docker engine by two names';
const unreachableText =
  'cannot reach the Docker engine of a host: no engine starts or stops there; replicas that answer keep serving';

function noteTrouble({ state, log, settings }: Context, trouble: string, level: 'warn' | 'error' = 'warn'): void {
  state.reachable = false;
  state.ready = false;
  if (state.trouble === trouble) return;
  state.trouble = trouble;
  const text = level === 'error' ? ignoredText : unreachableText;
  log[level]({ host: settings.name, trouble }, text);
}

async function agree({ state, connection: { api }, settings, selfContainer }: Context): Promise<void> {
  await api.negotiate();
  const info = await api.info();
  state.engineId = info.ID || null;
  // A gateway in a container sees its own disk at this path, or none.
  const isHere = settings.docker.type === 'unix' && selfContainer === null;
  state.imagesFolder = isHere ? info.DockerRootDir || null : null;
  const found = gpusOfInfo(info, settings.gpuAccess);
  state.access = found.access;
  state.isElsewhere = false;
  state.ready = true;
  if (settings.gpus !== null) {
    state.inventoryAt = null;
    return;
  }
  if (state.gpus.length === 0) state.gpus = found.gpus;
  state.inventoryAt = found.mayHaveMore ? 0 : null;
}

/** Counts GPUs with a container if the Docker engine does not know them; retries after a while if that failed. */
async function countGpus(context: Context): Promise<void> {
  const { state, connection, fleetId, log, settings } = context;
  if (state.inventoryAt === null || Date.now() < state.inventoryAt) return;
  state.inventoryAt = Date.now() + inventoryRetryMs;
  const image = await findProbeImage(context);
  if (image === null) return;
  try {
    const others = state.gpus.filter(({ id }) => !isOfNvidia(id));
    const found = await probeInventory({ api: connection.api, fleetId, image, access: state.access });
    state.gpus = [...found, ...others];
    state.inventoryAt = null;
  } catch (error) {
    log.warn(
      { host: settings.name, image, trouble: String(error) },
      'the GPUs of a host could not be counted; engines that need GPUs may not start there. Retrying every minute',
    );
  }
}

async function findProbeImage({ settings, engineImages, connection: { api } }: Context): Promise<string | null> {
  const { probeImage } = settings;
  for (const image of probeImage === null ? new Set(engineImages()) : [probeImage]) {
    if (await api.hasImage(image).catch(() => false)) return image;
  }
  return null;
}

async function join(context: Context, networks: ReadonlySet<string>): Promise<void> {
  const { state, selfContainer, connection, log, settings } = context;
  if (selfContainer === null || state.isElsewhere || networks.size === 0) return;
  try {
    state.isElsewhere = (await joinNetworks(connection.api, selfContainer, networks)) === null;
  } catch (error) {
    log.warn(
      { host: settings.name, trouble: String(error) },
      'the gateway cannot join the networks of engines on a host; requests to their replicas there fail until the gateway can',
    );
  }
}
