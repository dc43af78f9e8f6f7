import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { systemClock } from '#base/clock.ts';
import { createLog } from '#base/log.ts';
import type { EngineDefinition } from '#core/catalog/catalog.ts';
import { createFleet, type Fleet, type FleetOptions } from '#core/fleet/fleet.ts';
import { containerDefinition, gpuHost } from '#test/fleet/container-engines.ts';
import { Machines, SharedStore } from './simulated-machines.ts';
import { mustAcquire, newFolder } from '#test/fleet/test-fleet.ts';

const ends: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).toReversed()) await end();
});

interface TestGateways {
  readonly machines: Machines;
  readonly store: SharedStore;
  readonly join: (name: string, engines: readonly EngineDefinition[], isFrozen?: () => boolean) => Promise<Fleet>;
}

function newGateways(gpus: number): TestGateways {
  const machines = new Machines([gpuHost('h', gpus)]);
  const store = new SharedStore();
  store.lead('one');
  ends.push(() => machines.close());
  return {
    machines,
    store,
    async join(name, engines, isFrozen) {
      const folder = newFolder();
      const options: FleetOptions = {
        engines,
        dataDir: join(folder, 'data'),
        workingDirectory: folder,
        env: {},
        clock: systemClock,
        log: createLog('silent'),
        drivers: { docker: machines.driver() },
        stores: { shared: store.of(name, isFrozen) },
        policy: { backoffFirstMs: 20, unreachableMs: 500 },
      };
      const fleet = createFleet(options);
      await fleet.start();
      ends.push(async () => {
        await fleet.close();
        rmSync(folder, { recursive: true, force: true });
      });
      return fleet;
    },
  };
}

const until = (check: () => void | Promise<void>) => vi.waitFor(check, { timeout: 300_000, interval: 20 });
const chat = (over: Parameters<typeof containerDefinition>[1] = {}) =>
  containerDefinition('chat', { drainMs: 2000, ...over });

describe('a leader that lost its lease', () => {
  it("changes nothing when it wakes, and the new leader's state stays", async () => {
    const { machines, store, join } = newGateways(1);
    let isFrozen = false;
    const one = await join('one', [chat()], () => isFrozen);
    const two = await join('two', [chat()]);
    (await mustAcquire(two, 'chat')).release();
    isFrozen = true;
    store.lead('two');
    await until(() => expect(store.published?.epoch).toBe(store.epoch));
    const [replicaId = ''] = machines.starts;
    // Both see it end; one of them believes to lead, and may not.
    await machines.end(replicaId, { exitCode: 1 });
    await until(() => expect(one.candidates('chat').map(({ replica }) => replica.id)).toEqual([machines.starts[1]]));
    expect(machines.starts).toHaveLength(2);
    expect(machines.replicas.get(machines.starts[1] ?? '')?.observed.epoch).toBe(store.epoch);
    expect(store.published?.epoch).toBe(store.epoch);
  });
});

describe('a leader that cannot confirm its lease', () => {
  it('starts nothing, then starts the engine when it can, and waiting requests are served', async () => {
    const { machines, store, join } = newGateways(1);
    const fleet = await join('one', [chat()]);
    machines.uncertainStarts = 2;
    const lease = await mustAcquire(fleet, 'chat');
    expect(machines.uncertainStarts).toBe(0);
    expect(machines.starts).toEqual([lease.replica.id]);
    expect(store.published?.engines).toMatchObject([{ phase: 'ready', failedStarts: 0, cause: null }]);
    lease.release();
  });
});

describe('several gateways', () => {
  it('share one start, and keep serving when another gateway leads', async () => {
    const { machines, store, join } = newGateways(1);
    const one = await join('one', [chat()]);
    const two = await join('two', [chat()]);
    const leases = await Promise.all([...Array(20)].map((_, at) => mustAcquire(at % 2 === 0 ? one : two, 'chat')));
    expect(machines.starts).toHaveLength(1);
    store.lead('two');
    await until(() => expect(store.published?.epoch).toBe(store.epoch));
    expect(one.tryAcquire('chat')).not.toBeNull();
    expect(two.tryAcquire('chat')).not.toBeNull();
    expect(machines.starts).toHaveLength(1);
    for (const lease of leases) lease.release();
    // Nobody leads: what runs serves on, and nothing new begins.
    store.lead('nobody');
    for (const { observed } of machines.replicas.values()) await machines.end(observed.replica.id, { exitCode: 0 });
    await until(() => expect(two.candidates('chat')).toEqual([]));
    store.lead('one');
    await until(() => expect(machines.starts).toHaveLength(2));
    await until(() => expect(two.candidates('chat')).toHaveLength(1));
  });

  it('stop an engine only after the requests of all gateways have ended', async () => {
    const { machines, join } = newGateways(1);
    const one = await join('one', [chat({ drainMs: 60_000 })]);
    const two = await join('two', [chat({ drainMs: 60_000 })]);
    const lease = await mustAcquire(two, 'chat');
    await (
      await one.command('chat', 'stop')
    )();
    await until(() => expect(two.candidates('chat')).toEqual([]));
    await until(() => expect(one.list()[0]?.replicas[0]?.state).toBe('draining'));
    expect(await two.acquire('chat', {})).toMatchObject({ ok: false, refusal: { code: 'start_failed' } });
    expect(machines.replicas.get(lease.replica.id)?.observed.state).toBe('running');
    lease.release();
    await until(() => expect(machines.replicas.size).toBe(0));
    expect(two.list()[0]).toMatchObject({ phase: 'held', held: true, status: 'failed' });
  });
});

describe('a replica', () => {
  it('serves no request before it passes the usage check and a canary', async () => {
    const { machines, join } = newGateways(1);
    const fleet = await join('one', [chat()]);
    machines.broken.add('chat acme/engine:1');
    expect(await fleet.acquire('chat', {})).toMatchObject({
      ok: false,
      refusal: { code: 'start_failed', publicText: expect.stringMatching(/does not answer requests as it should/) },
    });
    expect(fleet.list()[0]?.causeDetail).toMatch(/status 500/);
    await until(() => expect(machines.replicas.size).toBe(0));
    machines.broken.clear();
    await (
      await fleet.command('chat', 'reset')
    )();
    await until(async () => expect((await fleet.acquire('chat', {})).ok).toBe(true));
    const [, second] = machines.starts;
    expect(machines.asked.filter((line) => line === `${second} /v1/chat/completions`)).toHaveLength(2);
  });

  it('is replaced beside the old one when its file changes, and a failing file is rejected', async () => {
    const { machines, join } = newGateways(2);
    const fleet = await join('one', [chat()]);
    const lease = await mustAcquire(fleet, 'chat');
    machines.broken.add('chat acme/engine:2');
    fleet.prepare([chat({ image: 'acme/engine:2' })])();
    await until(() => expect(fleet.list()[0]?.rollout?.state).toBe('refused'));
    expect(fleet.candidates('chat').map(({ replica }) => replica.id)).toEqual([lease.replica.id]);
    lease.release();
    fleet.prepare([chat({ image: 'acme/engine:3' })])();
    await until(() =>
      expect(fleet.candidates('chat').map(({ replica }) => replica.id)).not.toContain(lease.replica.id),
    );
    expect(fleet.candidates('chat')).toHaveLength(1);
    await until(() => expect(machines.replicas.has(lease.replica.id)).toBe(false));
    fleet.prepare([])();
    await until(() => expect(machines.replicas.size).toBe(0));
    expect(await fleet.acquire('chat', {})).toMatchObject({ ok: false, refusal: { code: 'taken_away' } });
  });

  it('sleeps when idle if its file sets a sleep level, and wakes for the next request', async () => {
    const { machines, join } = newGateways(1);
    const fleet = await join('one', [chat({ idleMs: 100, sleepLevel: 2 })]);
    const first = await mustAcquire(fleet, 'chat');
    first.release();
    await until(() => expect(fleet.list()[0]?.replicas[0]?.state).toBe('asleep'));
    expect(fleet.status('chat')).toBe('cold');
    const again = await mustAcquire(fleet, 'chat');
    expect(again.replica.id).toBe(first.replica.id);
    expect(again.cold).toBe(true);
    const control = machines.asked
      .filter((line) => !/health|\/v1\/|metrics|version/.test(line))
      .map((line) => line.split(' ')[1]);
    expect(control).toEqual([
      '/sleep?level=2',
      '/wake_up?tags=weights',
      '/collective_rpc',
      '/wake_up?tags=kv_cache',
      '/reset_prefix_cache',
    ]);
  });

  it('keeps serving when the other of two replicas exits with code 0', async () => {
    const { machines, join } = newGateways(2);
    const fleet = await join('one', [chat({ replicas: { min: 2, max: 2 } })]);
    await until(() => expect(fleet.candidates('chat')).toHaveLength(2));
    const [first = ''] = machines.starts;
    await machines.end(first, { exitCode: 0 });
    await until(() => expect(fleet.candidates('chat').map(({ replica }) => replica.id)).not.toContain(first));
    expect(fleet.tryAcquireReplica(first)).toBeNull();
    const { replica } = await mustAcquire(fleet, 'chat');
    expect(fleet.tryAcquireReplica(replica.id)?.replica.id).toBe(replica.id);
    await until(() => expect(fleet.candidates('chat')).toHaveLength(2));
  });
});

describe('waiting requests', () => {
  it('are released in a fair order across their keys', async () => {
    const { join } = newGateways(1);
    const fleet = await join('one', [chat()]);
    const order: string[] = [];
    const ask = async (keyId: string, tokens: number): Promise<void> => {
      await fleet.acquire('chat', { fairness: { keyId, tokens } });
      order.push(keyId);
    };
    await Promise.all([...[...Array(5)].map(() => ask('big', 100)), ...[...Array(5)].map(() => ask('small', 10))]);
    expect(order.slice(0, 6).filter((key) => key === 'small')).toHaveLength(5);
  });
});
