import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { systemClock } from '#base/clock.ts';
import { createLog } from '#base/log.ts';
import type { EngineDefinition, ProcessDriverSettings } from '#core/catalog/catalog.ts';
import { createFleet, type Fleet, type FleetOptions, type Lease, type Replica } from '#core/fleet/fleet.ts';

export const fixtureEngine = new URL('../../core/fleet/fixtures/engine.ts', import.meta.url).pathname;
const repository = new URL('../../..', import.meta.url).pathname;

export function newFolder(): string {
  return mkdtempSync(join(tmpdir(), 'hg-fleet-'));
}

export function engineDefinition(
  driver: Partial<ProcessDriverSettings> & { args?: readonly string[] } = {},
  over: Partial<EngineDefinition> = {},
): EngineDefinition {
  const { args = [], ...settings } = driver;
  return {
    file: 'engines/fixture.yaml',
    id: 'fixture',
    name: 'Fixture',
    aliases: [],
    listsAliases: false,
    huggingFaceId: 'acme/fixture',
    taskType: 'chat',
    contextLength: 1024,
    enabled: true,
    ownedBy: 'acme',
    pricing: null,
    flexPricing: null,
    fallbacks: [],
    concurrencyMax: null,
    requestChanges: { defaults: {}, overrides: {} },
    queuedRequestsMax: null,
    queuedTokensMax: null,
    wedgedMs: 60_000,
    stalledMs: 600_000,
    kind: 'openai',
    allow: [],
    unservedTools: 'reject',
    mediaDomains: [],
    nMax: null,
    mediaMax: 32,
    structuredOutputs: { choicesMax: 1000, depthMax: 16, propertiesMax: 500, bytesMax: 65_536, repetitionsMax: 250 },
    shareCache: false,
    hardwareProfile: null,
    organizationId: null,
    lora: [],
    lorasMax: null,
    loraRankMax: null,
    driver: {
      type: 'process',
      command: ['node', fixtureEngine, '{socket}', ...args],
      env: {},
      memoryBytes: null,
      gpus: null,
      group: null,
      idleMs: 600_000,
      startTimeoutMs: 30_000,
      drainMs: 200,
      upMinMs: 0,
      replicas: { min: 0, max: 1 },
      schedule: [],
      pinned: false,
      ...settings,
    },
    ...over,
  };
}

export interface TestFleet {
  readonly fleet: Fleet;
  readonly dataDir: string;
  /** Pids of every start so far. */
  readonly starts: () => number[];
  readonly close: () => Promise<void>;
}

/** A fleet on a folder of its own, started; its engines note every start. */
export async function startFleet(
  engines: readonly EngineDefinition[],
  options: Partial<FleetOptions> & { folder?: string } = {},
): Promise<TestFleet> {
  const { folder = newFolder(), ...over } = options;
  const startsFile = join(folder, 'starts');
  const fleet = createFleet({
    engines: engines.map((engine) => withStartsFile(engine, startsFile)),
    dataDir: join(folder, 'data'),
    workingDirectory: repository,
    env: process.env,
    clock: systemClock,
    log: createLog('silent'),
    ...over,
  });
  try {
    await fleet.start();
  } catch (error) {
    rmSync(folder, { recursive: true, force: true });
    throw error;
  }
  return {
    fleet,
    dataDir: join(folder, 'data'),
    starts: () => readStarts(startsFile),
    async close() {
      await fleet.close();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

export function withStartsFile(engine: EngineDefinition, startsFile: string): EngineDefinition {
  if (engine.driver.type !== 'process') return engine;
  return { ...engine, driver: { ...engine.driver, env: { STARTS_FILE: startsFile, ...engine.driver.env } } };
}

export function readStarts(file: string): number[] {
  if (!existsSync(file)) return [];
  return readFileSync(file, 'utf8').trim().split('\n').map(Number);
}

export async function mustAcquire(fleet: Fleet, engineId = 'fixture'): Promise<Lease> {
  const result = await fleet.acquire(engineId, {});
  if (!result.ok) throw new Error(`refused: ${JSON.stringify(result.refusal)}`);
  return result.lease;
}

/** Body of a GET to a replica; null when the connection ends without an answer. */
export function ask({ endpoint }: Replica, path: string): Promise<string | null> {
  return new Promise((resolve) => {
    const target =
      endpoint.socketPath === null ? { host: endpoint.host, port: endpoint.port } : { socketPath: endpoint.socketPath };
    const call = request({ ...target, path, agent: false }, (response) => {
      let text = '';
      response.setEncoding('utf8');
      response.on('data', (part: string) => (text += part));
      response.on('end', () => resolve(text));
      response.on('error', () => resolve(null));
    });
    call.on('error', () => resolve(null));
    call.end();
  });
}

export function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    // A zombie whose parent has not looked yet is dead all the same.
    if (process.platform !== 'linux') return true;
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
    return stat.slice(stat.lastIndexOf(')') + 2, stat.lastIndexOf(')') + 3) !== 'Z';
  } catch {
    return false;
  }
}
