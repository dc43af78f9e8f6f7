import fc from 'fast-check';
import { beforeAll, describe, expect, it } from 'vitest';
import { formatId, parseId } from '#base/id.ts';
import { systemAuthor } from '#core/audit/audit.ts';
import { makeCluster } from '#test/api/cluster-support.ts';
import { useApi } from '#test/api/test-api.ts';

/** In whatever order events come and however often, the hours are those that were reported. */

const api = useApi();
const hour = 3_600_000;
const begin = Date.parse('2026-03-10T00:00:00Z');

interface Event {
  readonly kind: 'allocate' | 'release';
  readonly generation: number | null;
  readonly atMs: number;
}

/** Spans of a node in hours since `begin`, one after the other; the last may be open. */
const spans = fc
  .tuple(fc.uniqueArray(fc.integer({ min: 0, max: 200 }), { minLength: 1, maxLength: 8 }))
  .map(([hours]) => hours.toSorted((a, b) => a - b))
  .map((sorted) =>
    Array.from({ length: Math.ceil(sorted.length / 2) }, (_, index) => ({
      from: sorted[index * 2] ?? 0,
      to: sorted[index * 2 + 1] ?? null,
    })),
  );
type Spans = readonly { readonly from: number; readonly to: number | null }[];

const eventsOf = (told: Spans): Event[] =>
  told.flatMap(({ from, to }, index) => [
    { kind: 'allocate' as const, generation: index + 1, atMs: begin + from * hour },
    ...(to === null ? [] : [{ kind: 'release' as const, generation: index + 1, atMs: begin + to * hour }]),
  ]);

let clusterId = '';
beforeAll(async () => {
  clusterId = parseId('cluster', (await makeCluster(api(), { nodes: [] })).id) ?? '';
});
let count = 0;
const shape = { address: '10.0.0.7', privateAddress: null, sshPort: 22, sshUser: 'root', hostKey: null };

/** Tells a new node's events, one after the other. @returns its intervals in hours */
async function tell(events: readonly Event[]): Promise<string[]> {
  const input = { ...shape, name: `n-${(count += 1)}`, hardwareProfile: 'h100-8x', gpus: 8, labels: {} };
  const node = await api().clusters.addNode(clusterId, input, systemAuthor);
  if (node === null) throw new Error('there is no cluster');
  const ref = { clusterId, node: { id: node.id } };
  for (const event of events) await api().clusters.record(ref, { ...event, author: systemAuthor });
  const rows = await api().db.sql<{ started: string; ended: string | null }[]>`
    select started_ms as started, ended_ms as ended from usage_intervals
    where node_id = ${formatId('node', node.id)} order by started_ms`;
  const found = (await api().clusters.find(clusterId))?.nodes.find(({ id }) => id === node.id);
  expect(found?.status).toBe(rows.some(({ ended }) => ended === null) ? 'allocated' : 'released');
  const text = (ms: string) => String((Number(ms) - begin) / hour);
  return rows.map(({ started, ended }) => `${text(started)}–${ended === null ? '' : text(ended)}`);
}

const wanted = (told: Spans): string[] => told.map(({ from, to }) => `${from}–${to ?? ''}`);

describe('the intervals of a node', () => {
  it('match the events in any order and with repetitions when events have a generation', async () => {
    const shuffled = spans.chain((told) => {
      const events = eventsOf(told);
      const more = fc.shuffledSubarray(events, { minLength: 0 });
      return more.chain((twice) => {
        const all = [...events, ...twice];
        return fc.shuffledSubarray(all, { minLength: all.length }).map((order) => ({ told, order }));
      });
    });
    await fc.assert(
      fc.asyncProperty(shuffled, async ({ told, order }) => {
        expect(await tell(order)).toEqual(wanted(told));
      }),
      { numRuns: 25 },
    );
  });

  it('match the events in time order with repetitions when events have no generation', async () => {
    const repeated = spans.chain((told) =>
      fc.array(fc.integer({ min: 1, max: 3 }), { minLength: 16, maxLength: 16 }).map((times) => ({
        told,
        order: eventsOf(told).flatMap((event, index) =>
          Array.from({ length: times[index] ?? 1 }, () => ({ ...event, generation: null })),
        ),
      })),
    );
    await fc.assert(
      fc.asyncProperty(repeated, async ({ told, order }) => {
        expect(await tell(order)).toEqual(wanted(told));
      }),
      { numRuns: 15 },
    );
  });

  it('match the events when each release comes before its allocation', async () => {
    await fc.assert(
      fc.asyncProperty(spans, async (told) => {
        const pairs = told.map((span) => eventsOf([span]).toReversed());
        const order = pairs.flat().map((event) => ({ ...event, generation: null }));
        expect(await tell(order)).toEqual(wanted(told));
      }),
      { numRuns: 15 },
    );
  });
});
