import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { request, type ClientRequest } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll } from 'vitest';
import type { Body } from '#test/inference/inference-gateway.ts';
import type { TestDocker } from '#test/docker.ts';
import { startGateway, type TestGateway } from '#test/gateway.ts';
import { labelFilter, removeLabelled, useDocker } from '#test/shared-docker.ts';
import { createCaller, type Caller } from './checked-client.ts';
import { image } from './docker-drivers.ts';

/** Whole gateways with their engines on a real Docker engine, asked only over HTTP. */

export interface EngineFile {
  /** Further arguments of the stand-in. */
  readonly flags?: readonly string[];
  /** Fields of the file, over those of every test. */
  readonly fields?: Readonly<Record<string, unknown>>;
}

/** The file of an engine that is the stand-in in a container. */
export function dockerFile(id: string, { flags = [], fields = {} }: EngineFile = {}): string {
  const all = {
    version: 1,
    id,
    name: `The ${id}`,
    hugging_face_id: `acme/${id}`,
    task_type: 'chat',
    context_length: 8192,
    pricing: { input_per_million: 0.1, cached_input_per_million: 0.05, output_per_million: 0.4 },
    driver: 'docker',
    image,
    args: [`acme/${id}`, '--max-model-len', '8192', ...flags],
    idle_seconds: 600,
    start_timeout_seconds: 60,
    drain_seconds: 60,
    min_up_seconds: 0,
    ...fields,
  };
  return `${JSON.stringify(all, null, 2)}\n`;
}

/** hosts.yaml with one machine whose GPUs are listed by hand; containers learn theirs from a variable. */
export function hostsFile(socketPath: string, gpuIds: readonly string[] = []): string {
  const gpus = gpuIds.map((id) => ({ id, memory_gib: 80, profile: 'Fake H100' }));
  const host = { name: 'local', docker: `unix://${socketPath}`, gpus, gpu_access: 'environment' };
  return `${JSON.stringify({ hosts: [host] })}\n`;
}

export interface ContainerEvent {
  readonly action: string;
  readonly id: string;
  /** Milliseconds since the Unix epoch, by the Docker engine. */
  readonly atMs: number;
  readonly replica: string;
  readonly exitCode: string | undefined;
  /** Number of the signal that a `kill` sent. */
  readonly signal: string | undefined;
  readonly engine: string;
}

export interface Container {
  readonly Id: string;
  readonly Names: readonly string[];
  readonly State: string;
  readonly Labels: Readonly<Record<string, string>>;
}

/**
 * The Docker engine of a file's tests, with the stand-in's image, and all its events of containers meanwhile. What
 * belongs to a file is known by the ids of its engines, which no other file may use.
 */
export interface Floor {
  docker(): TestDocker;
  /** Events of an engine's containers so far. */
  events(engineId: string): readonly ContainerEvent[];
  /** Those of an engine that there are, whatever state they are in. */
  containers(engineId: string): Promise<readonly Container[]>;
  networks(engineId: string): Promise<readonly unknown[]>;
  inspect(id: string): Promise<Body>;
  /**
   * Goes through all that happened to engines' containers in the order of its happening. Reports for each start which
   * of its devices another container had that moment; `[]` when each device was one container's at a time.
   */
  sharedDevices(): readonly string[];
  /** A folder of engine files with hosts.yaml. */
  folder(engines: Readonly<Record<string, string>>, gpuIds?: readonly string[]): string;
  /** A gateway in this process with engine files of its own, stopped at the end of the file. */
  open(options: FloorGateway): Promise<Whole>;
}

export interface FloorGateway {
  readonly engines: Readonly<Record<string, string>>;
  readonly gpuIds?: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  readonly databaseUrl?: string;
}

export interface Whole extends Caller {
  readonly gateway: TestGateway;
  /** Before the end of the file. */
  readonly stop: () => Promise<void>;
  /** Writes the file of an engine anew, or removes it, and has the files read again. */
  readonly change: (id: string, text: string | null) => Promise<void>;
}

/** @param options of a Docker engine of the file's own, which it may kill; null shares one with the other files */
export function createFloor(options: (() => readonly string[]) | null = null): Floor {
  const docker = useDocker(options);
  let watched: WatchedEvents | null = null;
  const folders: string[] = [];
  const gateways = new Set<TestGateway>();
  const ids = new Set<string>();
  const byLabel = (id: string): string => labelFilter('headgate.engine', id);

  beforeAll(() => {
    watched = watchEvents(docker());
  });
  afterAll(async () => {
    await Promise.all([...gateways].map((gateway) => gateway.stop()));
    watched?.stop();
    if (options === null) for (const id of ids) await removeLabelled(docker(), 'headgate.engine', id);
    for (const folder of folders) rmSync(folder, { recursive: true, force: true });
  });

  const folder: Floor['folder'] = (engines, gpuIds = []) => {
    const dir = mkdtempSync(join(tmpdir(), 'hg-docker-engines-'));
    folders.push(dir);
    for (const [name, text] of Object.entries(engines)) {
      ids.add(name);
      writeFileSync(join(dir, `${name}.yaml`), text);
    }
    writeFileSync(join(dir, 'hosts.yaml'), hostsFile(docker().socketPath, gpuIds));
    return dir;
  };
  return {
    docker,
    folder,
    events: (id) => (watched?.all() ?? []).filter(({ engine: of }) => of === id),
    sharedDevices: () => (watched === null ? [] : sharedDevices(watched, ids)),
    containers: async (id) =>
      (await docker().call('GET', `/containers/json?all=1&filters=${byLabel(id)}`)) as readonly Container[],
    networks: async (id) => (await docker().call('GET', `/networks?filters=${byLabel(id)}`)) as readonly unknown[],
    inspect: (id) => docker().call('GET', `/containers/${id}/json`) as Promise<Body>,
    async open({ engines, gpuIds = [], env = {}, databaseUrl }) {
      const enginesDir = folder(engines, gpuIds);
      const given = databaseUrl === undefined ? {} : { databaseUrl };
      const gateway = await startGateway({ enginesDir, env, ...given });
      gateways.add(gateway);
      const caller = createCaller(gateway.url, gateway.key);
      return {
        ...caller,
        gateway,
        async stop() {
          gateways.delete(gateway);
          await gateway.stop();
        },
        async change(id, text) {
          if (text === null) rmSync(join(enginesDir, `${id}.yaml`));
          else writeFileSync(join(enginesDir, `${id}.yaml`), text);
          await caller.admin('POST', '/v1/admin/engines/reload');
        },
      };
    },
  };
}

interface WatchedEvents {
  all(): readonly ContainerEvent[];
  /** NVIDIA_VISIBLE_DEVICES of the containers that were started, by their id. */
  readonly devices: ReadonlyMap<string, string>;
  stop(): void;
}

function sharedDevices(watched: WatchedEvents, ids: ReadonlySet<string>): string[] {
  const owners = new Map<string, string>();
  const shared: string[] = [];
  for (const { action, id, engine } of watched.all().filter((event) => ids.has(event.engine))) {
    const own = (watched.devices.get(id) ?? 'unknown').split(',').filter((device) => device !== 'void');
    for (const device of own) {
      const owner = owners.get(device);
      if (action === 'start' && owner !== undefined) shared.push(`${engine} got ${device}, which ${owner} had`);
      if (action === 'start') owners.set(device, `${engine} ${id}`);
      if (action === 'die' && owner === `${engine} ${id}`) owners.delete(device);
    }
  }
  return shared;
}

interface RawEvent {
  readonly Action: string;
  readonly timeNano: number;
  readonly Actor: { readonly ID: string; readonly Attributes: Readonly<Record<string, string>> };
}

/** Goes on with a Docker engine that was unavailable: its events of that time come then. */
function watchEvents(docker: TestDocker): WatchedEvents {
  const all: ContainerEvent[] = [];
  const devices = new Map<string, string>();
  const seen = new Set<string>();
  let stopped = false;
  let sent: ClientRequest | null = null;
  let sinceNano = Date.now() * 1e6;
  const filters = encodeURIComponent(JSON.stringify({ type: ['container'] }));

  function take(line: string): void {
    const { Action: action, timeNano, Actor } = JSON.parse(line) as RawEvent;
    // They do not come strictly in the order of their times, and after a reconnection some come twice.
    if (seen.has(line)) return;
    seen.add(line);
    sinceNano = Math.max(sinceNano, timeNano);
    const { ID: id, Attributes: about } = Actor;
    const engine = about['headgate.engine'];
    const replica = about['headgate.replica'] ?? '';
    if (engine === undefined) return;
    const { exitCode, signal } = about;
    all.push({ action, id, atMs: timeNano / 1e6, engine, replica, exitCode, signal });
    // An ended container has no devices that a test could ask for.
    if (action === 'create') inspect(id).catch(() => undefined);
  }
  async function inspect(id: string): Promise<void> {
    const { Config: config }: Body = await docker.call('GET', `/containers/${id}/json`);
    const prefix = 'NVIDIA_VISIBLE_DEVICES=';
    const variable = config.Env.find((one: string) => one.startsWith(prefix)) ?? prefix;
    devices.set(id, variable.slice(prefix.length));
  }
  function connect(): void {
    if (stopped) return;
    const since = (sinceNano / 1e9).toFixed(9);
    let rest = '';
    sent = request(
      { socketPath: docker.socketPath, path: `/events?filters=${filters}&since=${since}`, agent: false },
      (answer) => {
        answer.setEncoding('utf8').on('data', (chunk: string) => {
          const lines = (rest + chunk).split('\n');
          rest = lines.pop() ?? '';
          for (const line of lines) if (line.trim() !== '') take(line);
        });
        answer.on('error', () => undefined);
        answer.on('close', again);
      },
    );
    sent.on('error', again);
    sent.end();
  }
  let waits = false;
  function again(): void {
    if (waits) return;
    waits = true;
    setTimeout(() => {
      waits = false;
      connect();
    }, 50).unref();
  }
  connect();
  return {
    all: () => all,
    devices,
    stop() {
      stopped = true;
      sent?.destroy();
    },
  };
}
