import { afterEach, describe, expect, it } from 'vitest';
import type { Lease, LoadReport, Replica } from '#core/fleet/fleet.ts';
import { EngineRouter, type ReplicaFleet } from '#core/routing/engine-router.ts';
import { affinityOf } from '#edge/inference/engine/affinity.ts';
import { endpoints } from '#edge/inference/request/endpoints.ts';
import { readFields } from '#edge/inference/request/fields.ts';
import { createRandom } from './simulation/trace.ts';

const [endpoint] = endpoints;
const bounds = { sequencesMax: 128, inputsMax: 2048, textsMax: 8192 };

/** The affinity of a request with this body, as the request path makes it. */
function affinityFor(body: object, organizationId = '', engine: object = { kind: 'openai' }) {
  const fields = readFields(
    Buffer.from(JSON.stringify({ model: 'chat', ...body })).toString('latin1'),
    endpoint,
    bounds,
  );
  const caller = { key: { organizationId } } as never;
  return affinityOf({ endpoint, part: null }, { caller, model: { engine } as never, fields });
}

const says = (role: string, content: string) => ({ role, content });
const long = (name: string): string => `${name} `.repeat(400);

/** Replicas in memory, and routing among them. */
function bench(...ids: string[]) {
  const open = new Map(ids.map((id) => [id, 0]));
  const reports = new Map<string, LoadReport>();
  const gone = new Set<string>();
  let nowMs = 0;
  const fleet: ReplicaFleet = {
    candidates: () => [...open].map(([id, leases]) => ({ replica: replicaOf(id), leases })),
    tryAcquireReplica: (id) => (gone.has(id) ? null : leaseOf(id)),
    readReplicaLoad: (id) => Promise.resolve(reports.get(id) ?? 'none'),
  };
  function leaseOf(id: string): Lease {
    open.set(id, (open.get(id) ?? 0) + 1);
    const release = (): void => void open.set(id, (open.get(id) ?? 0) - 1);
    return {
      replica: replicaOf(id),
      cold: false,
      readySinceMs: null,
      isWedged: false,
      describe: () => undefined,
      release,
    };
  }
  const router = new EngineRouter({ engineId: 'chat', fleet, nowMs: () => nowMs, random: createRandom(1) });
  routers.push(router);
  const acquire = (affinity: ReturnType<typeof affinityFor> | null = null, exclude?: ReadonlySet<string>) =>
    router.acquire(fleet.candidates('chat'), affinity, exclude);
  return {
    open,
    gone,
    router,
    acquire,
    pass: (ms: number) => void (nowMs += ms),
    /** The replica that a request goes to, which ends at once. */
    send: (affinity: ReturnType<typeof affinityFor> | null = null): string | undefined => {
      const lease = acquire(affinity);
      lease?.release();
      return lease?.replica.id;
    },
    fail: (id: string, outcome: 'failed' | 'unreachable', times: number): void => {
      for (let time = 0; time < times; time += 1) {
        const lease = leaseOf(id);
        router.report(lease, outcome, open.size);
        lease.release();
      }
    },
  };
}

function replicaOf(id: string): Replica {
  const place = { socketPath: `/run/${id}.sock`, host: 'localhost', port: 0, tls: false, basePath: '' };
  return {
    id,
    engineId: 'chat',
    endpoint: place,
    upstreamModel: null,
    headerLines: '',
    forcedUsage: true,
    kind: 'vllm',
  };
}

const routers: EngineRouter[] = [];
afterEach(() => {
  for (const router of routers.splice(0)) router.close();
});

describe('routing among the replicas of an engine', () => {
  it('returns null when all replicas were tried, and skips replicas that the fleet does not lease', () => {
    const { acquire, gone } = bench('a', 'b');
    expect(acquire(null, new Set(['a', 'b']))).toBeNull();
    gone.add('a');
    expect(acquire()?.replica.id).toBe('b');
    gone.add('b');
    expect(acquire()).toBeNull();
  });

  it('never returns a replica that was tried for the request, even with a cached prompt', () => {
    const { acquire, send } = bench('a', 'b', 'c');
    const affinity = affinityFor({ messages: [says('user', long('question'))] });
    const first = send(affinity) ?? '';
    for (let round = 0; round < 10; round += 1) {
      const lease = acquire(affinity, new Set([first]));
      expect(lease?.replica.id).not.toBe(first);
    }
  });

  it('sends every request of a conversation to the same replica', () => {
    const { send } = bench('a', 'b', 'c', 'd');
    for (let conversation = 0; conversation < 12; conversation += 1) {
      const messages = [says('system', 'You help.'), says('user', long(`conversation ${conversation} é`))];
      const first = send(affinityFor({ messages }));
      for (let turn = 0; turn < 4; turn += 1) {
        messages.push(says('assistant', long('answer')), says('user', long(`turn ${turn}`)));
        expect(send(affinityFor({ messages }))).toBe(first);
      }
    }
  });

  it('does not treat prompts with different tools as the same', () => {
    const { acquire } = bench('a', 'b');
    const messages = [says('user', long('question'))];
    const held = acquire(affinityFor({ messages, tools: [{ name: 'one' }] }))?.replica.id;
    // The first one is still at work, so that what knows nothing else goes to the other replica.
    expect(acquire(affinityFor({ messages, tools: [{ name: 'two' }] }))?.replica.id).not.toBe(held);
  });

  it('matches a prompt of another organization only when organizations share the cache', () => {
    const messages = [says('user', long('question'))];
    for (const [engine, isShared] of [
      [{ kind: 'vllm', shareCache: false }, false],
      [{ kind: 'vllm', shareCache: true }, true],
      [{ kind: 'openai', shareCache: false }, true],
    ] as const) {
      const { acquire, open } = bench('a', 'b');
      const lease = acquire(affinityFor({ messages }, 'one', engine));
      const home = lease?.replica.id ?? '';
      // One request more than the other has is no reason to leave what is cached.
      expect(acquire(affinityFor({ messages }, 'other', engine))?.replica.id === home).toBe(isShared);
      for (const id of open.keys()) open.set(id, 0);
      expect(acquire(affinityFor({ messages }, 'one', engine))?.replica.id).toBe(home);
    }
  });

  it('keeps requests with one client key together, and separates equal keys of two organizations', () => {
    const { send } = bench('a', 'b', 'c', 'd');
    const of = (organization: string, more: object) =>
      send(affinityFor({ messages: [says('user', 'hi')], ...more }, organization));
    const homes = new Set<string | undefined>();
    for (let organization = 0; organization < 30; organization += 1) {
      const home = of(`organization ${organization}`, { prompt_cache_key: 'key' });
      homes.add(home);
      expect(of(`organization ${organization}`, { prompt_cache_key: 'key', user: 'someone' })).toBe(home);
    }
    expect(homes.size).toBe(4);
    expect(of('one', { user: 'u' })).toBe(of('one', { user: 'u' }));
  });

  it.each([
    ['a number', 5],
    ['null', null],
    ['an empty string', ''],
    ['a list', ['a']],
  ])('ignores a client key that is %s', (_, value) => {
    const { acquire } = bench('a', 'b', 'c', 'd');
    const affinity = affinityFor({ messages: [], prompt_cache_key: value, user: value }, 'one');
    expect(affinity.stickyKey()).toBeNull();
    const taken = [1, 2, 3, 4].map(() => acquire(affinity)?.replica.id);
    expect(new Set(taken).size).toBe(4);
  });

  it('spreads a burst of one prompt, so that no replica has much more than its share', () => {
    const { acquire, open } = bench('a', 'b', 'c', 'd');
    const affinity = affinityFor({ messages: [says('user', long('the same'))] });
    for (let request = 1; request <= 40; request += 1) {
      acquire(affinity);
      expect(Math.max(...open.values())).toBeLessThanOrEqual(1.25 * (request / 4 + 1) + 1);
    }
  });

  it('ejects a failing replica, tries it again with one request, and readmits it', () => {
    const { acquire, fail, pass, router, send } = bench('a', 'b', 'c');
    fail('a', 'failed', 5);
    for (let request = 0; request < 30; request += 1) expect(send()).not.toBe('a');
    pass(5_000);
    const trial = acquire();
    expect(trial?.replica.id).toBe('a');
    for (let request = 0; request < 30; request += 1) expect(send()).not.toBe('a');
    if (trial !== null) router.report(trial, 'answered', 3);
    trial?.release();
    expect(Array.from({ length: 30 }, () => send())).toContain('a');
  });

  it('does not use a request that has already failed as the trial', () => {
    const { acquire, fail, pass } = bench('a', 'b', 'c');
    fail('a', 'unreachable', 1);
    pass(5_000);
    expect(acquire(null, new Set(['b']))?.replica.id).toBe('c');
  });
});
