import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { containerDefinition, gpuHost } from '#test/fleet/container-engines.ts';
import { World } from './simulated-world.ts';

/**
 * Any events in any order: no device has two replicas, nothing is started twice, no request meets a spec
 * that does not pass its checks (all three are checked by the world at every look), what is pinned stays, replicas do
 * not grow beyond their bound, and in the end every request has its answer.
 */

const ids = ['chat', 'code', 'pinned', 'wide'] as const;
type Id = (typeof ids)[number];

type Event =
  | { readonly type: 'request' | 'finish' | 'crash' | 'sicken' | 'bad file' | 'good file'; readonly id: Id }
  | { readonly type: 'command'; readonly id: Id; readonly kind: 'start' | 'stop' | 'restart' | 'reset' }
  | { readonly type: 'take over' | 'deaf' | 'remains' }
  | { readonly type: 'host'; readonly index: number }
  | { readonly type: 'run'; readonly ms: number };

const anyId = fc.constantFrom(...ids);
const anyEvent: fc.Arbitrary<Event> = fc.oneof(
  { weight: 6, arbitrary: fc.record({ type: fc.constantFrom('request' as const, 'finish' as const), id: anyId }) },
  {
    weight: 2,
    arbitrary: fc.record({
      type: fc.constantFrom('crash' as const, 'sicken' as const, 'bad file' as const, 'good file' as const),
      id: anyId,
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      type: fc.constant('command' as const),
      id: anyId,
      kind: fc.constantFrom('start' as const, 'stop' as const, 'restart' as const, 'reset' as const),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({ type: fc.constantFrom('take over' as const, 'deaf' as const, 'remains' as const) }),
  },
  { weight: 1, arbitrary: fc.record({ type: fc.constant('host' as const), index: fc.nat({ max: 1 }) }) },
  { weight: 6, arbitrary: fc.record({ type: fc.constant('run' as const), ms: fc.integer({ min: 100, max: 15_000 }) }) },
);

function definitionOf(id: Id) {
  const times = { upMinMs: 3000, idleMs: 20_000, drainMs: 4000, startTimeoutMs: 40_000 };
  switch (id) {
    case 'chat':
      return containerDefinition(id, { ...times, replicas: { min: 0, max: 2 }, placement: 'spread' });
    case 'code':
      return containerDefinition(id, { ...times, sleepLevel: 1, upMinMs: 0 });
    case 'pinned':
      return containerDefinition(id, { ...times, pinned: true });
    case 'wide':
      return containerDefinition(id, { ...times, gpus: { count: 2, memoryBytesMin: null, profile: null } });
  }
}

class Run {
  readonly world = new World([gpuHost('h', 2), gpuHost('i', 1)], { failedMs: 5000, gpuFreeTimeoutMs: 3000 }, 2);
  #files = 1;
  #requests = 0;

  constructor() {
    for (const id of ids) this.world.file(definitionOf(id));
    this.world.reconcile();
  }

  happen(event: Event): void {
    const { world } = this;
    switch (event.type) {
      case 'request':
        this.#requests += 1;
        return world.request(event.id, world.gateways[this.#requests % 2]);
      case 'finish':
        world.finish(event.id);
        return;
      case 'crash': {
        const [container] = world.live(event.id);
        if (container !== undefined) world.crash(container, 0);
        return;
      }
      case 'sicken': {
        const [container] = world.live(event.id);
        if (container !== undefined) container.isWell = false;
        return;
      }
      case 'bad file':
      case 'good file':
        this.#files += 1;
        if (event.type === 'bad file') world.bad.add(`${event.id}-v${this.#files}`);
        return world.file(definitionOf(event.id), `v${this.#files}`);
      case 'command':
        return world.command(event.id, event.kind);
      case 'take over':
        return world.takeOver();
      case 'deaf':
        for (const gateway of world.gateways.slice(1)) gateway.deaf = !gateway.deaf;
        return;
      case 'remains':
        if (world.remains.size > 0) world.remains.clear();
        else world.remains.set('h-gpu0', 30 * 2 ** 30);
        return;
      case 'host':
        world.hosts = world.hosts.map((host, at) =>
          at === event.index ? { ...host, reachable: !host.reachable } : host,
        );
        return;
      case 'run':
        world.run(event.ms);
        this.#bounds();
    }
  }

  #bounds(): void {
    for (const id of ids) {
      const max = id === 'chat' ? 2 : 1;
      const reachable = this.world
        .live(id)
        .filter(({ placement }) => this.world.hosts.find(({ name }) => name === placement.host)?.reachable === true);
      // One more while it renews itself, one while an excess that came back with a host is taken away.
      if (reachable.length > max + 2) throw new Error(`${id} has ${reachable.length} replicas`);
    }
  }

  /** Removes every obstacle, and requests end. */
  heal(): void {
    const { world } = this;
    world.hosts = world.hosts.map((host) => ({ ...host, reachable: true }));
    for (const gateway of world.gateways) gateway.deaf = false;
    world.bad.clear();
    world.remains.clear();
    for (const id of ids) world.command(id, 'reset');
    for (let second = 0; second < 200 && world.waiting() > 0; second += 1) {
      for (const id of ids) while (world.finish(id));
      world.run(1000);
    }
  }
}

describe('a fleet under random events', () => {
  it('shares no GPU, serves nothing that fails its checks, keeps pinned replicas, and answers every request', () => {
    fc.assert(
      fc.property(fc.array(anyEvent, { minLength: 5, maxLength: 60 }), (events) => {
        const run = new Run();
        for (const event of events) run.happen(event);
        run.heal();
        expect(run.world.said.filter((line) => /pinned: a replica makes room/.test(line))).toEqual([]);
        if (run.world.waiting() > 0) throw new Error(`${run.world.said.slice(-30).join('\n')}\n${run.world.show()}`);
        // And it settles: what nobody uses is stopped in the end.
        for (const id of ids) while (run.world.finish(id));
        run.world.until('all is quiet', () => run.world.live().every(({ asleep }) => asleep));
      }),
      { numRuns: 60 },
    );
  }, 120_000);
});
