import { connectHost, type DockerApi, type HostConnection } from '#base/docker/docker.ts';
import { isLate } from '#base/is-late.ts';
import type { Log } from '#base/log.ts';
import type { DockerHostSettings, GpuAccess } from '#core/catalog/catalog.ts';
import type { Gpu, HostReport } from '#core/fleet/drivers/driver.ts';
import { watchEvents } from './events.ts';
import { gpusOfInfo, probeInventory } from './gpus.ts';
import { joinNetworks } from './network.ts';
import { observeContainers, type ObservedContainers, type ObserveMemory } from './observe.ts';

export interface HostOptions {
  readonly settings: DockerHostSettings;
  readonly fleetId: string;
  readonly fleetSecret: string;
  readonly selfContainer: string | null;
  readonly log: Log;
  /** Images that may hold `nvidia-smi`, asked when GPUs are to be counted. */
  readonly engineImages: () => readonly string[];
  readonly knownEngines: ReadonlySet<string>;
  readonly epoch: () => bigint;
  readonly onChange: () => void;
  /** Name of the entry before this one whose Docker engine has that id; null when there is none. */
  readonly namesake: (engineId: string) => string | null;
}

/** A host as it was last seen. */
export interface HostView extends ObservedContainers {
  readonly report: HostReport;
}

export interface ObservedHost {
  readonly settings: DockerHostSettings;
  readonly api: DockerApi;
  /** Id of its Docker engine, as that reported it last; null: not known. */
  engineId(): string | null;
  /** Why nothing may be done there whatever it answers; null when there is no such reason. */
  refusal(): string | null;
  gpuAccess(): GpuAccess;
  /** In which image `nvidia-smi` is asked; null when there is none on the host. */
  probeImage(): Promise<string | null>;
  /** Asks the host; one that does not answer soon is answered for with what was seen last. Never throws. */
  observe(): Promise<HostView>;
  /** What was seen last. */
  view(): HostView;
  /** Something was changed there: what is being read now may be older than that. */
  touch(): void;
  close(): void;
}

/** A host that hangs must not hold up what happens on the others; its answer is taken when it comes. */
const observeWaitMs = 3000;
const inventoryRetryMs = 60_000;

interface HostState {
  engineId: string | null;
  reachable: boolean;
  /** The API version is agreed on, and the GPUs are known. */
  ready: boolean;
  access: GpuAccess;
  gpus: readonly Gpu[];
  /** When to ask for GPUs again; Unix ms, null when they are known. */
  inventoryAt: number | null;
  /** The gateway's own container does not run there. */
  isElsewhere: boolean;
  seen: ObservedContainers;
  /** The running read, if it began after the last change. */
  reading: Promise<void> | null;
  begun: number;
  applied: number;
  /** Why it could not be read last time; logged once. */
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
  // What runs there is seen, and counted, by the entry that is used.
  if (refusal !== null) return { ...nothing, report: { name, pools, reachable: false, trouble: refusal, gpus } };
  const { reachable } = state;
  const trouble = reachable || state.trouble === null ? {} : { trouble: state.trouble };
  return { ...state.seen, report: { name, pools, reachable, ...trouble, gpus } };
}

/** Two entries for one machine would each give its GPUs away: only the first one is used. */
function refusalOf({ state, namesake }: Context): string | null {
  const other = state.engineId === null ? null : namesake(state.engineId);
  if (other === null) return null;
  return `its Docker engine is the one of ${other} (ID ${state.engineId}): hosts.yaml names a machine twice, or one machine is a copy of the other`;
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
    if (!state.reachable) context.log.info({ host: settings.name }, 'the Docker engine of a host answers');
    state.reachable = true;
    state.trouble = null;
  } catch (error) {
    if (sequence >= state.applied) noteError(context, error);
  } finally {
    // What comes later must be read anew.
    if (state.begun === sequence) state.reading = null;
  }
}

function noteError(context: Context, error: unknown): void {
  const isMistake = error instanceof NamedTwice;
  noteTrouble(context, error instanceof Error ? error.message : String(error), isMistake ? 'error' : 'warn');
}

function noteTrouble({ state, log, settings }: Context, trouble: string, level: 'warn' | 'error' = 'warn'): void {
  state.reachable = false;
  state.ready = false;
  if (state.trouble === trouble) return;
  state.trouble = trouble;
  const text = level === 'error' ? 'a host is not used' : 'the Docker engine of a host cannot be asked';
  log[level]({ host: settings.name, trouble }, text);
}

async function agree({ state, connection: { api }, settings }: Context): Promise<void> {
  await api.negotiate();
  const info = await api.info();
  state.engineId = info.ID || null;
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

/** Asks a container for what the engine does not know of its GPUs; again after a while when that failed. */
async function countGpus(context: Context): Promise<void> {
  const { state, connection, fleetId, log, settings } = context;
  if (state.inventoryAt === null || Date.now() < state.inventoryAt) return;
  state.inventoryAt = Date.now() + inventoryRetryMs;
  const image = await findProbeImage(context);
  if (image === null) return;
  try {
    state.gpus = await probeInventory({ api: connection.api, fleetId, image, access: state.access });
    state.inventoryAt = null;
  } catch (error) {
    log.warn({ host: settings.name, image, trouble: String(error) }, 'the GPUs of a host cannot be asked');
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
    log.warn({ host: settings.name, trouble: String(error) }, 'the gateway cannot join the network of an engine');
  }
}
