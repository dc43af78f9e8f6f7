import { describe, expect, it } from 'vitest';
import { containerDefinition, gpuHost } from '#test/fleet/container-engines.ts';
import type { Gateway } from './simulated-gateway.ts';
import { World } from './simulated-world.ts';

/** A world whose engine has one ready replica per gateway with a request, and metrics. */
function busyWorld({ gateways = 1 } = {}): { world: World; id: string; gateway: Gateway } {
  const world = new World([gpuHost('h', 1)], {}, gateways);
  world.file(containerDefinition('a'));
  world.request('a');
  world.until('ready', () => world.ready('a').length === 1);
  const [replica] = world.ready('a');
  const [gateway] = world.gateways;
  if (replica === undefined || gateway === undefined) throw new Error('nothing is ready');
  world.progress.set(replica.id, '0 0');
  return { world, id: replica.id, gateway };
}

describe('a replica with requests and without progress', () => {
  it('gets one canary after the time of its file, and is replaced when it does not answer', () => {
    const { world, id } = busyWorld();
    world.silent.add(id);
    world.run(59_000);
    expect(world.canaries).toEqual([]);
    world.until('it leaves routing', () => world.engine('a').replicas.some(({ wedged }) => wedged === true), 3000);
    expect(world.canaries).toEqual([id]);
    expect(world.engine('a')).toMatchObject({
      cause: { kind: 'wedged' },
      replicas: [{ id, state: 'stopping', wedged: true }],
    });
    world.until('another is ready', () => world.ready('a').some((replica) => replica.id !== id));
    expect(world.engine('a')).toMatchObject({ cause: null, phase: 'ready' });
    expect(world.everStarted).toHaveLength(2);
  });

  it('keeps running when it answers the canary, and tried again a minute later', () => {
    const { world, id } = busyWorld();
    world.run(125_000);
    expect(world.canaries).toEqual([id, id]);
    expect(world.everStarted).toEqual([id]);
  });

  it('is replaced although its clients leave early one after the other', () => {
    const { world, id } = busyWorld();
    world.silent.add(id);
    for (let clients = 0; clients < 4; clients += 1) {
      world.run(20_000);
      world.finish('a');
      world.run(5000);
      world.request('a');
    }
    expect(world.canaries[0]).toBe(id);
  });

  it('gets more time while a gateway reports a long prompt that it reads', () => {
    const { world, id, gateway } = busyWorld();
    gateway.longPrompts = { [id]: 100_000 };
    world.run(200_000);
    expect(world.canaries).toEqual([]);
    gateway.longPrompts = {};
    world.run(1000);
    expect(world.canaries).toEqual([id]);
  });

  it('is found whichever gateway sent its requests', () => {
    const { world, id } = busyWorld({ gateways: 2 });
    world.finish('a');
    world.request('a', world.gateways[1]);
    world.silent.add(id);
    world.run(65_000);
    expect(world.canaries).toEqual([id]);
  });
});

describe('a replica that gets no canary', () => {
  it('makes a token now and then', () => {
    const { world, id } = busyWorld();
    world.silent.add(id);
    for (let tokens = 1; tokens < 5; tokens += 1) {
      world.run(45_000);
      world.progress.set(id, `0 ${tokens}`);
    }
    expect(world.canaries).toEqual([]);
  });

  it('has no request', () => {
    const { world, id } = busyWorld();
    world.finish('a');
    world.silent.add(id);
    world.run(200_000);
    expect(world.canaries).toEqual([]);
  });

  it('has no metrics, or a file that turns the check off', () => {
    const { world, id } = busyWorld();
    world.silent.add(id);
    world.progress.clear();
    world.run(100_000);
    world.progress.set(id, '0 0');
    world.file({ ...containerDefinition('a'), wedgedMs: null });
    world.run(100_000);
    expect(world.canaries).toEqual([]);
  });
});
