import { describe, expect, it } from 'vitest';
import { choose, type RouteCandidate, type RouteRequest } from '#core/routing/choose-replica.ts';
import { createRandom } from './simulation/trace.ts';

const noPrompt: RouteRequest = { chain: new Int32Array(0), stickyKey: null };
const prompt = (blocks: number): RouteRequest => ({
  chain: Int32Array.from({ length: blocks }, (_, at) => at * 7919 + 1),
  stickyKey: null,
});

function candidate(id: string, leases: number, more: Partial<RouteCandidate> = {}): RouteCandidate {
  return { id, leases, load: null, matchedBlocks: 0, ...more };
}

/** A report that was taken when this gateway had `leasesThen` there. */
function reported(running: number, waiting: number, leasesThen: number): Pick<RouteCandidate, 'load'> {
  return { load: { running, waiting, atMs: 0, leasesThen } };
}

/** How often each is chosen in many draws. */
function shares(candidates: readonly RouteCandidate[], request = noPrompt): Record<string, number> {
  const random = createRandom(1);
  const counts: Record<string, number> = {};
  for (let round = 0; round < 1000; round += 1) {
    const id = choose(candidates, request, random)?.id ?? 'none';
    counts[id] = (counts[id] ?? 0) + 1;
  }
  return counts;
}

const first = (): number => 0;

describe('the choice of a replica by load', () => {
  it('returns null without candidates', () => {
    expect(choose([], noPrompt, first)).toBeNull();
  });

  it('takes the least loaded replica by engine reports and our own leases', () => {
    expect(choose([candidate('a', 2), candidate('b', 1)], noPrompt, first)?.id).toBe('b');
    const busy = candidate('a', 0, reported(3, 9, 0));
    expect(choose([busy, candidate('b', 1, reported(1, 0, 1))], noPrompt, first)?.id).toBe('b');
  });

  it('counts requests sent since the report, so that a burst between two reports spreads', () => {
    const leases = [0, 0, 0];
    for (let request = 0; request < 30; request += 1) {
      const candidates = leases.map((held, at) => candidate(String(at), held, reported(0, 0, 0)));
      const at = Number(choose(candidates, noPrompt, createRandom(request))?.id);
      leases[at] = (leases[at] ?? 0) + 1;
    }
    expect(leases).toEqual([10, 10, 10]);
  });

  it('counts requests that ended since the report', () => {
    const ended = candidate('a', 0, reported(10, 0, 10));
    expect(choose([ended, candidate('b', 3, reported(3, 0, 3))], noPrompt, first)?.id).toBe('a');
  });

  it('does not treat a replica without a report as idle', () => {
    const others = [candidate('a', 1, reported(9, 0, 1)), candidate('b', 0, reported(8, 0, 0))];
    expect(shares([...others, candidate('new', 3)])['new']).toBeUndefined();
  });

  it('spreads evenly over equally loaded replicas', () => {
    const counts = shares([candidate('a', 1), candidate('b', 1), candidate('c', 1)]);
    for (const count of Object.values(counts)) expect(count).toBeGreaterThan(250);
  });

  it('gives the least loaded replica only its share when other gateways also send requests', () => {
    const candidates = [5, 6, 7, 8].map((running, at) => candidate(String(at), 0, reported(running, 0, 0)));
    const counts = shares(candidates);
    expect(counts['0']).toBeLessThan(650);
    expect(counts['3']).toBeUndefined();
  });
});

describe('the choice of a replica by prefix', () => {
  it('leaves the replica that has the prompt cached when its load exceeds the bound', () => {
    const candidates = [candidate('a', 9, { matchedBlocks: 20 }), candidate('b', 4), candidate('c', 3)];
    expect(choose(candidates, prompt(20), first)).toEqual({ id: 'c', reason: 'load' });
  });

  it('takes the replica that has the prompt cached although others have less load', () => {
    const candidates = [candidate('a', 6, { matchedBlocks: 20 }), candidate('b', 5), candidate('c', 4)];
    expect(choose(candidates, prompt(20), first)).toEqual({ id: 'a', reason: 'prefix' });
  });

  it('takes the next best holder of the prefix when the load of the best one exceeds the bound', () => {
    const next = candidate('b', 4, { matchedBlocks: 15 });
    const candidates = [candidate('a', 12, { matchedBlocks: 20 }), next, candidate('c', 3), candidate('d', 4)];
    expect(choose(candidates, prompt(20), first)?.id).toBe('b');
  });

  it('takes the least loaded of the replicas with the same cached prefix', () => {
    const candidates = [2, 1, 3].map((leases, at) => candidate(String(at), leases, { matchedBlocks: 4 }));
    expect(choose(candidates, prompt(30), first)).toEqual({ id: '1', reason: 'load' });
  });

  it('ignores a cached prefix that is short compared with the prompt', () => {
    const candidates = [candidate('a', 4, { matchedBlocks: 2 }), candidate('b', 3), candidate('c', 3)];
    expect(choose(candidates, prompt(60), first)?.id).not.toBe('a');
  });

  it('is the same on all gateways that know only the shared beginning of a prompt', () => {
    const seen = [0, 1, 2, 3].map((own) =>
      choose(
        ['a', 'b', 'c', 'd'].map((id, at) => candidate(id, own, { matchedBlocks: 3, ...reported(9 + (at % 2), 0, 1) })),
        prompt(40),
        createRandom(own),
      ),
    );
    expect(new Set(seen.map((choice) => choice?.id)).size).toBe(1);
  });
});

describe('the choice of a replica by a client key', () => {
  const keyed = (stickyKey: string, chain = noPrompt.chain): RouteRequest => ({ chain, stickyKey });
  const idle = ['a', 'b', 'c', 'd'].map((id) => candidate(id, 0));

  it('is always the same replica, in any order of the candidates', () => {
    for (let key = 0; key < 50; key += 1) {
      const request = keyed(`key ${key}`);
      expect(choose(idle.toReversed(), request, Math.random)).toEqual(choose(idle, request, Math.random));
    }
  });

  it('spreads keys over all replicas, and moves only the keys of a removed replica', () => {
    const keys = Array.from({ length: 400 }, (_, key) => keyed(`key ${key}`));
    const before = keys.map((request) => choose(idle, request, first)?.id);
    for (const { id } of idle) expect(before.filter((chosen) => chosen === id).length).toBeGreaterThan(60);
    const after = keys.map((request) => choose(idle.slice(1), request, first)?.id);
    const moved = before.filter((id, at) => id !== 'a' && after[at] !== id);
    expect(moved).toEqual([]);
  });

  it('takes the next replica of the key when the load of the first exceeds the bound', () => {
    const request = keyed('key');
    const favourite = choose(idle, request, first)?.id;
    const loaded = idle.map((one) => (one.id === favourite ? { ...one, leases: 8 } : one));
    const without = idle.filter(({ id }) => id !== favourite);
    expect(choose(loaded, request, first)?.id).toBe(choose(without, request, first)?.id);
  });

  it('prefers the replica that has most of the prompt cached over the key', () => {
    const { chain } = prompt(10);
    const holders = idle.map((one) => ({ ...one, matchedBlocks: one.id === 'c' ? 8 : 1 }));
    for (let key = 0; key < 20; key += 1) {
      expect(choose(holders, keyed(`key ${key}`, chain), first)).toEqual({ id: 'c', reason: 'prefix' });
    }
  });
});
