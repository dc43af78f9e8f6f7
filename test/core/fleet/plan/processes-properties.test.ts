import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { gib, machine, processDefinition } from '#test/fleet/container-engines.ts';
import { World } from './simulated-world.ts';

/**
 * Any requests, in any order, for processes that do not all fit together: none is started without the memory
 * that its file says or beside another of its group (the world checks both at every start), what stays stays, and in
 * the end every request has its answer.
 */

const times = { upMinMs: 0, idleMs: 20_000, drainMs: 3000, startTimeoutMs: 40_000 };
const group = (name: string, exclusive = false) => ({ name, swap: true, exclusive, persistent: false });
const files = {
  small: { memoryBytes: 3 * gib, replicas: { min: 0, max: 2 } },
  large: { memoryBytes: 12 * gib, upMinMs: 2000 },
  left: { memoryBytes: 3 * gib, group: group('pair') },
  right: { memoryBytes: 3 * gib, group: group('pair') },
  alone: { memoryBytes: 6 * gib, group: group('alone', true) },
  pinned: { memoryBytes: 1 * gib, pinned: true },
  // It does not say that it needs as much.
  silent: {},
} as const;
type Id = keyof typeof files;
const ids = Object.keys(files) as Id[];

type Event =
  | { readonly type: 'request' | 'finish' | 'crash' | 'new file'; readonly id: Id }
  | { readonly type: 'take over' | 'deaf' }
  | { readonly type: 'run'; readonly ms: number };

const anyId = fc.constantFrom(...ids);
const anyEvent: fc.Arbitrary<Event> = fc.oneof(
  { weight: 6, arbitrary: fc.record({ type: fc.constantFrom('request' as const, 'finish' as const), id: anyId }) },
  { weight: 1, arbitrary: fc.record({ type: fc.constantFrom('crash' as const, 'new file' as const), id: anyId }) },
  { weight: 1, arbitrary: fc.record({ type: fc.constantFrom('take over' as const, 'deaf' as const) }) },
  { weight: 6, arbitrary: fc.record({ type: fc.constant('run' as const), ms: fc.integer({ min: 100, max: 9000 }) }) },
);

class Run {
  readonly world = new World([machine()], { failedMs: 5000 }, 2);
  #requests = 0;
  #files = 1;

  constructor() {
    for (const id of ids) this.#file(id);
    this.world.machineMemory = 16;
    for (const id of ids) this.world.takes.set(id, id === 'silent' ? 10 : 0);
    this.world.takes.set('large', 12);
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
        const [first] = world.live(event.id);
        if (first !== undefined) world.crash(first, 0);
        return;
      }
      case 'new file':
        this.#files += 1;
        return this.#file(event.id);
      case 'take over':
        return world.takeOver();
      case 'deaf':
        for (const gateway of world.gateways.slice(1)) gateway.deaf = !gateway.deaf;
        return;
      case 'run':
        world.run(event.ms);
    }
  }

  #file(id: Id): void {
    this.world.file(processDefinition(id, { ...times, ...files[id] }), `v${this.#files}`);
  }

  heal(): void {
    const { world } = this;
    for (const gateway of world.gateways) gateway.deaf = false;
    for (const id of ids) world.command(id, 'reset');
    for (let second = 0; second < 300 && world.waiting() > 0; second += 1) {
      for (const id of ids) while (world.finish(id));
      world.run(1000);
    }
  }
}

describe('processes that do not all fit together, under random events', () => {
  it('start only with enough room, keep pinned ones, and answer every waiting request', () => {
    fc.assert(
      fc.property(fc.array(anyEvent, { minLength: 5, maxLength: 60 }), (events) => {
        const run = new Run();
        for (const event of events) run.happen(event);
        run.heal();
        expect(run.world.said.filter((line) => /pinned: a replica makes room/.test(line))).toEqual([]);
        if (run.world.waiting() > 0) throw new Error(`${run.world.said.slice(-30).join('\n')}\n${run.world.show()}`);
        for (const id of ids) while (run.world.finish(id));
        run.world.until('all is quiet', () => run.world.live().length === 0);
      }),
      { numRuns: 60 },
    );
  }, 120_000);
});
