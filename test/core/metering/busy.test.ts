import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { uuidv7 } from '#base/id.ts';
import { createHistory, type UsageRecord } from '#core/metering/metering.ts';
import { chargeOf, useWallet } from '#test/wallet/test-wallet.ts';

const startMs = Date.UTC(2026, 2, 10);
const minute = 60_000;
const none = { requests: null, tokens: null, monthTokens: null, concurrency: null };
const ids = ['d4e5f6-0a1b2c3d', 'd4e5f6-ffffffff', 'external:llama'];

interface Run {
  readonly beganMs: number;
  readonly admittedMs: number;
  readonly queuedMs: number;
  readonly servedMs: number;
  /** Null where nobody was asked. */
  readonly replica: string | null;
  readonly model: string;
  readonly requestsLeft: number | null;
}

const run: fc.Arbitrary<Run> = fc.record({
  beganMs: fc.integer({ min: -90 * minute, max: 90 * minute }),
  // One, two and three bytes.
  admittedMs: fc.oneof(fc.nat(127), fc.nat(16_383), fc.nat(1_000_000)),
  queuedMs: fc.oneof(fc.constant(0), fc.nat(minute)),
  servedMs: fc.oneof(fc.nat(1000), fc.nat(40 * minute)),
  replica: fc.oneof({ weight: 4, arbitrary: fc.constantFrom(...ids) }, { weight: 1, arbitrary: fc.constant(null) }),
  model: fc.constantFrom('small', 'large'),
  requestsLeft: fc.option(fc.nat(300)),
});

function recordOf(organizationId: string, one: Run): UsageRecord {
  const { beganMs, admittedMs, queuedMs, servedMs, replica, model, requestsLeft } = one;
  return chargeOf(organizationId, 0n, {
    id: uuidv7(startMs + beganMs),
    model,
    queuedMs,
    totalMs: admittedMs + queuedMs + servedMs,
    facts: {
      admittedMs,
      coldMs: 0,
      remaining: { ...none, requests: requestsLeft },
      replica: replica === null ? null : { id: replica, ageSeconds: 5 },
    },
  });
}

/** Counts the milliseconds of the window in which something ran, span by span. */
function busyOf(runs: readonly Run[], fromMs: number, toMs: number): number {
  const spans = runs
    .map(({ beganMs, admittedMs, queuedMs, servedMs }) => {
      const sinceMs = startMs + beganMs + admittedMs + queuedMs;
      return [Math.max(fromMs, sinceMs), Math.min(toMs, sinceMs + servedMs)] as const;
    })
    .filter(([since, until]) => since < until);
  const edges = [...new Set(spans.flat())].toSorted((a, b) => a - b);
  return edges.slice(1).reduce((sum, edge, index) => {
    const before = edges[index] ?? edge;
    return sum + (spans.some(([since, until]) => since <= before && until >= edge) ? edge - before : 0);
  }, 0);
}

describe('the busy time of replicas', () => {
  const bench = useWallet();
  const historyOf = () => createHistory({ db: bench.db, wallet: bench.wallet, connections: 1, waitMsMax: 60_000 });

  it('counts overlapping requests once per replica, within the window, across models and organizations', async () => {
    const organizations = [await bench.openWallet(1n), await bench.openWallet(1n)];
    const [fromMs, toMs] = [startMs - 30 * minute, startMs + 30 * minute];
    await fc.assert(
      fc.asyncProperty(fc.array(run, { maxLength: 30 }), async (runs) => {
        await bench.db.sql`truncate usage_requests`;
        for (const [index, one] of runs.entries()) {
          await bench.writer.write([recordOf(organizations[index % 2] ?? '', one)]);
        }
        const { replicas, keptFromMs } = await historyOf().busy({ fromMs, toMs });
        expect(keptFromMs).toBe(0);
        const found = new Map(replicas.map((one) => [one.replicaId, one]));
        // An external replica holds no GPU of ours.
        for (const replica of ids.slice(0, 2)) {
          const own = runs.filter((one) => one.replica === replica);
          const { busyMs = 0, model = own[0]?.model } = found.get(replica) ?? {};
          expect(busyMs).toBe(busyOf(own, fromMs, toMs));
          expect([undefined, ...own.map((one) => one.model)]).toContain(model);
          found.delete(replica);
        }
        expect([...found]).toEqual([]);
      }),
      { numRuns: 25 },
    );
  });

  it('is reported beside the usage of all organizations', async () => {
    const [one, other] = [await bench.openWallet(10n), await bench.openWallet(10n)];
    const id = () => uuidv7(startMs + 40 * 24 * 60 * minute);
    await bench.writer.write([chargeOf(one, 3n, { id: id(), model: 'shared' })]);
    await bench.writer.write([chargeOf(other, 4n, { id: id(), model: 'shared' })]);
    const span = { fromMs: startMs + 35 * 24 * 60 * minute, toMs: startMs + 45 * 24 * 60 * minute + 1 };
    const asked = { keyId: null, ...span, groupBy: ['model'], groupsMax: 10 } as const;
    const summary = await historyOf().summarize({ ...asked, organizationId: null });
    expect(summary).toMatchObject({ rows: [{ group: { model: 'shared' }, requests: 2, costPicoUsd: 7n }] });
    const own = await historyOf().summarize({ ...asked, organizationId: one });
    expect(own).toMatchObject({ totals: { requests: 1, costPicoUsd: 3n } });
  });
});
