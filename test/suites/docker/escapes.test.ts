import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createLog } from '#base/log.ts';
import { type DockerGate, startDockerGate } from '#edge/docker-gate/docker-gate.ts';
import { createLab } from '#test/docker/docker-drivers.ts';
import { makeScene, planned, runScript, type Scene, wayTo } from './escape-scene.ts';
import { calls, networks } from './escapes-by-calls.ts';
import { creations, mounts, namespaces, privileges } from './escapes-of-containers.ts';
import { networkBody } from '#test/docker/planned-container.ts';

const lab = createLab();
let scene: Scene | null = null;
let gate: DockerGate | null = null;

beforeAll(async () => {
  scene = await makeScene(lab.docker());
  const policy = {
    images: ['headgate-test/*'],
    binds: [{ source: scene.models, isReadOnly: false }],
    volumes: [{ source: 'hf-cache', isReadOnly: false }],
    allowsPorts: false,
    allowsSwarm: false,
    runImages: [],
    runNetworks: [],
  };
  const { socketPath } = lab.docker();
  gate = await startDockerGate({ host: '127.0.0.1', port: 0, socketPath, policy, log: createLog('silent') });
});
afterAll(async () => {
  await gate?.close();
  await scene?.remove();
});

function there(): Scene {
  if (scene === null) throw new Error('There is no scene.');
  return scene;
}

const direct = () => wayTo({ socketPath: lab.docker().socketPath });
const gated = () => wayTo({ port: gate?.port ?? 0 });

it("creates an engine's network and container through the Docker gate, which run as without it", async () => {
  expect((await gated()('POST', '/v1.41/networks/create', networkBody(planned('').network))).status).toBe(201);
  for (const way of [gated(), direct()]) expect(await runScript(way, `console.log('it ran')`)).toContain('it ran');
});

it("shows a gateway's networks through the Docker gate, and joins it to an engine's network only", async () => {
  const {
    otherGateway,
    networks: [foreign],
  } = there();
  const { network } = planned('');
  const networksOf = async (): Promise<string[]> => {
    const { text } = await gated()('GET', `/v1.41/containers/${otherGateway}/json`);
    return Object.keys((JSON.parse(text) as { NetworkSettings: { Networks: object } }).NetworkSettings.Networks);
  };
  expect(await networksOf()).toEqual([foreign]);
  const join = { Container: otherGateway, EndpointConfig: { GwPriority: -1 } };
  expect((await gated()('POST', `/v1.41/networks/${network}/connect`, join)).status).toBe(200);
  expect((await networksOf()).toSorted()).toEqual([network, foreign].toSorted());
  const leave = { Container: otherGateway, Force: true };
  expect((await gated()('POST', `/v1.41/networks/${foreign}/disconnect`, leave)).status).toBe(403);
  expect((await gated()('POST', `/v1.41/networks/${network}/disconnect`, leave)).status).toBe(200);
  expect(await networksOf()).toEqual([foreign]);
});

const escapes = { mounts, privileges, creations, namespaces, networks, calls };

// No test below uses the same object as another one of its kind.
describe.each(Object.entries(escapes))('the Docker gate: %s', (_kind, all) => {
  it.concurrent.each(all.map((escape) => [escape.name, escape] as const))('blocks %s', async (_name, { attempt }) => {
    const throughDoor = await attempt(gated(), there());
    const withoutIt = await attempt(direct(), there());
    expect({ throughDoor, withoutIt }).toEqual({ throughDoor: false, withoutIt: true });
  });
});
