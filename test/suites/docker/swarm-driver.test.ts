import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createRegistryLogins } from '#base/docker/registry-logins.ts';
import { createLog } from '#base/log.ts';
import type { ContainerDriverSettings, EngineDefinition, SwarmSettings } from '#core/catalog/catalog.ts';
import type { EngineDriver, Observation, ObservedReplica } from '#core/fleet/drivers/driver.ts';
import { type Fence, FenceLostError } from '#core/fleet/drivers/fence.ts';
import { swarmPlacement } from '#core/fleet/drivers/swarm/service.ts';
import { createSwarmDriver } from '#core/fleet/drivers/swarm/swarm.ts';
import { until } from '#test/docker/checked-client.ts';
import { ask, collect, containerEngine, holding, newId, scriptEngine, statusOf } from '#test/docker/docker-drivers.ts';
import { startRegistry } from './registry.ts';
import { startSwarm, type TestSwarm } from '#test/docker/swarm-machines.ts';

let swarm: TestSwarm | null = null;
const opened: EngineDriver[] = [];
beforeAll(async () => {
  swarm = await startSwarm([['GPU-aaaa']], { docker: ['--insecure-registry=10.0.0.0/8'] });
});
afterAll(async () => {
  await Promise.all(opened.map((driver) => driver.close()));
  await swarm?.stop();
});

function lab(): TestSwarm {
  if (swarm === null) throw new Error('There is no swarm.');
  return swarm;
}

interface Test {
  readonly driver: EngineDriver;
  readonly fleetId: string;
  start(definition: EngineDefinition, fence?: Fence): Promise<string>;
  untilIs(id: string, state: ObservedReplica['state']): Promise<ObservedReplica>;
  services(): Promise<number>;
}

async function open(
  engines: readonly EngineDefinition[],
  over: { fleetId?: string; swarm?: Partial<SwarmSettings>; socketPath?: string; dockerConfig?: string } = {},
): Promise<Test> {
  const fleetId = over.fleetId ?? newId();
  const socketPath = over.socketPath ?? lab().nodes[0]?.docker.socketPath ?? '';
  const settings = {
    network: 'host',
    gpuResource: 'NVIDIA-GPU',
    secrets: 'files',
    isNamed: false,
    gates: null,
  } as const;
  const log = createLog('silent');
  const driver = createSwarmDriver({
    swarm: { ...settings, docker: { type: 'unix', socketPath }, ...over.swarm },
    fleetId,
    fleetSecret: 'a secret of the fleet',
    env: { NAME: 'a value', MANY: 'first\n second\\n\n"third"' },
    logins: createRegistryLogins({ folder: over.dockerConfig ?? null, log }),
    log,
    selfContainer: null,
  });
  opened.push(driver);
  await driver.open(engines.map((engine) => driver.specOf(engine)));
  return {
    driver,
    fleetId,
    async start(definition, fence = holding) {
      const replicaId = newId();
      await driver.start({ replicaId, spec: driver.specOf(definition), placement: swarmPlacement, fence });
      return replicaId;
    },
    untilIs: (id, state) =>
      until(`${id} is ${state}`, async () => {
        const { replicas } = await driver.observe();
        return replicas.find((found) => found.replica.id === id && found.state === state);
      }),
    services: async () => {
      const all = await lab().services();
      return all.filter(({ Spec: { Labels: labels } }) => labels['headgate.fleet'] === fleetId).length;
    },
  };
}

function engine(driver: Partial<ContainerDriverSettings> = {}): EngineDefinition {
  return containerEngine({ type: 'swarm', ...driver });
}

function script(text: string, driver: Partial<ContainerDriverSettings> = {}): EngineDefinition {
  return scriptEngine(text, { type: 'swarm', ...driver });
}

const nothing: Observation = { replicas: [], hosts: [], orphans: [] };

describe.concurrent('a service that cannot start', () => {
  it('is not created without a valid fence', async () => {
    for (const yes of [0, 1, 2, 3]) {
      const test = await open([engine()]);
      let asked = 0;
      const fence = { epoch: 1n, holds: () => Promise.resolve((asked += 1) <= yes) };
      await expect(test.start(engine(), fence)).rejects.toThrow(FenceLostError);
      expect(await test.services()).toBe(0);
    }
  });

  it.each([
    ['an image that is not there', { image: '127.0.0.1:9/acme/no-such-engine:v1' }, 'IMAGE_NOT_FOUND'],
    ['a folder of the node that is not there', { volumes: [volume('/no/such/folder')] }, 'MOUNT'],
    ['a variable that refers to one that is not set', { env: { HF_TOKEN: '${NO_SUCH}' } }, 'MISSING_VARIABLE'],
    ['a node that there is none of', { constraints: ['node.labels.gpu==h100'] }, 'NO_SUITABLE_NODE'],
    ['more GPUs than any node has', { gpus: { count: 2, memoryBytesMin: null, profile: null } }, 'NO_SUCH_DEVICE'],
  ] as const)('reports %s', async (_, driver, code) => {
    const test = await open([engine()]);
    const id = await test.start(engine(driver));
    const { exit } = await test.untilIs(id, 'exited');
    expect(exit).toMatchObject({ stopRequested: false, exitCode: null, startErrorCode: code });
    await test.driver.forget(id, holding);
    expect((await test.driver.observe()).replicas).toEqual([]);
    expect(await test.services()).toBe(0);
  });

  it('reports an unreachable Docker engine as an unreachable host', async () => {
    const test = await open([engine()], { socketPath: '/no/such/docker.sock' });
    expect(await test.driver.observe()).toMatchObject({ hosts: [{ name: 'swarm', reachable: false }] });
  });
});

describe.concurrent('a start that loses its fence', () => {
  interface Secret {
    readonly Spec: { readonly Labels: Readonly<Record<string, string>> };
  }

  it('leaves no secret once the engine is started again', async () => {
    const definition = engine({ env: { ONE: '${NAME}', TWO: 'a ${NAME}' } });
    const test = await open([definition]);
    const owners = async (): Promise<readonly (string | undefined)[]> => {
      const all = (await lab().call('GET', '/secrets')) as readonly Secret[];
      const own = all.map(({ Spec: { Labels: labels } }) => labels);
      return own
        .filter((labels) => labels['headgate.fleet'] === test.fleetId)
        .map((labels) => labels['headgate.replica']);
    };
    for (let yes = 0; (await owners()).length === 0; yes += 1) {
      let asked = 0;
      const fence = { epoch: 1n, holds: () => Promise.resolve((asked += 1) <= yes) };
      await expect(test.start(definition, fence)).rejects.toThrow(FenceLostError);
    }
    const [first] = await owners();
    const id = await test.start(definition);
    expect(new Set(await owners())).toEqual(new Set([id]));
    expect(first).not.toBe(id);
  });
});

describe.concurrent('an image in a registry with a login', () => {
  const password = 'pass/word+1';

  async function pull(given: string) {
    const folder = mkdtempSync(join(tmpdir(), 'headgate-logins-'));
    const registry = await startRegistry({ username: 'ada', password, identityToken: '-' }, { address: lab().here });
    registry.release();
    try {
      const auth = Buffer.from(`ada:${given}`).toString('base64');
      const host = registry.image.slice(0, registry.image.indexOf('/'));
      writeFileSync(join(folder, 'config.json'), JSON.stringify(given === '' ? {} : { auths: { [host]: { auth } } }));
      // It is no program, which only a container can find out.
      const definition = engine({ image: registry.image, entrypoint: ['/weights'] });
      const test = await open([definition], { dockerConfig: folder, swarm: { secrets: 'environment' } });
      const id = await test.start(definition);
      const { exit } = await test.untilIs(id, 'exited');
      const shown = JSON.stringify([await lab().services(), await lab().tasks(), exit]);
      await test.driver.forget(id, holding);
      return { exit, shown, pulls: registry.layerRequests() };
    } finally {
      registry.close();
      rmSync(folder, { recursive: true, force: true });
    }
  }

  it('is not pulled by the nodes without a login or with a wrong one, and the cause says which', async () => {
    const { exit, pulls } = await pull('');
    expect({ code: exit?.startErrorCode, pulls }).toEqual({ code: 'IMAGE_NOT_FOUND', pulls: 0 });
    expect(exit?.logTail).toMatch(/^Pulled without a login: .* has no login for .*No such image/);
    const wrong = await pull('wrong-word');
    expect({ code: wrong.exit?.startErrorCode, pulls: wrong.pulls }).toEqual({ code: 'IMAGE_NOT_FOUND', pulls: 0 });
    expect(wrong.exit?.logTail).toMatch(/^Pulled with the login for .*No such image/);
    expect(wrong.shown).not.toContain('wrong-word');
  });

  it("is pulled by the nodes with its registry's login, which no manager shows", async () => {
    const { exit, pulls, shown } = await pull(password);
    expect(pulls).toBe(1);
    expect(exit?.startErrorCode).not.toBe('IMAGE_NOT_FOUND');
    expect(shown).not.toContain(password);
    expect(shown).not.toContain(Buffer.from(`ada:${password}`).toString('base64'));
  });
});

function volume(source: string) {
  return { source, target: '/data', readOnly: true };
}

describe.concurrent('a running service', () => {
  it('answers on a port of its node, to the gateway only, without development routes', async () => {
    const test = await open([engine()]);
    const id = await test.start(engine());
    const { replica } = await test.untilIs(id, 'running');
    await until('it is ready', async () => (await statusOf(replica, '/health')) === 200);
    expect(await statusOf(replica, '/v1/models', false)).toBe(401);
    expect((await ask(replica.endpoint, '/v1/models', replica.headerLines)).status).toBe(200);
    expect(await statusOf(replica, '/is_sleeping')).toBe(404);
    await test.driver.stop(id, { fence: holding, graceMs: 1000 });
    await test.driver.stop(id, { fence: holding, graceMs: 1000 });
    expect((await test.untilIs(id, 'exited')).exit).toMatchObject({ stopRequested: true });
    await test.driver.forget(id, holding);
    await test.driver.forget(id, holding);
    expect(await test.services()).toBe(0);
  });

  it('gets its secrets unchanged, and its log can be read', async () => {
    const text = `console.log(JSON.stringify([process.env.ONE, process.env.TWO, process.env.PLAIN])); setInterval(() => {}, 1e6)`;
    const env = { ONE: '${MANY}', TWO: 'a ${NAME}', PLAIN: 'plain' };
    const test = await open([script(text)]);
    const id = await test.start(script(text, { env }));
    await test.untilIs(id, 'running');
    const options = { tailLines: 10, follow: false, signal: new AbortController().signal };
    const [line = ''] = await until('a line', async () => {
      const lines = await collect(test.driver.logs(id, options));
      return lines.length > 0 && lines;
    });
    expect(JSON.parse(line)).toEqual(['first\n second\\n\n"third"', 'a a value', 'plain']);
    const inspected = JSON.stringify(await lab().services());
    expect(inspected).not.toContain('a a value');
    expect(inspected).toContain('PLAIN=plain');
  });

  it('ends with its exit code and last lines, and is not restarted', async () => {
    const text = `console.error('ValidationError: 1 validation error'); process.exit(3)`;
    const test = await open([script(text)]);
    const id = await test.start(script(text));
    const { exit } = await test.untilIs(id, 'exited');
    expect(exit).toMatchObject({ stopRequested: false, exitCode: 3, startErrorCode: null });
    expect(exit?.logTail).toContain('1 validation error');
  });

  it('is adopted by another gateway, and is an orphan to one without its engine', async () => {
    const test = await open([engine()]);
    const id = await test.start(engine());
    const { replica } = await test.untilIs(id, 'running');
    const next = await open([engine()], { fleetId: test.fleetId });
    expect((await next.untilIs(id, 'running')).replica).toEqual(replica);
    const other = await open([containerEngine({ type: 'swarm' }, { id: 'other' })], { fleetId: test.fleetId });
    expect(await other.driver.observe()).toMatchObject({ replicas: [], orphans: [{ engineId: 'chat' }] });
  });

  it('is not queried without an engine of that driver', async () => {
    const test = await open([]);
    expect(await test.driver.observe()).toEqual(nothing);
  });
});
