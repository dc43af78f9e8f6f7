import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { deriveIntervals, type ReportedAllocation } from '#core/costs/derive-intervals.ts';
import { type EdgeSums, usedPieces } from '#core/costs/usage-sums.ts';

const organization = { id: 'a', name: 'A' };
const horizon = 40;

describe('the intervals of a node', () => {
  const told = fc.record({
    allocatedMs: fc.integer({ min: 0, max: 30 }),
    length: fc.option(fc.integer({ min: -2, max: 9 })),
    releaseEstimated: fc.boolean(),
  });
  const moves = fc.uniqueArray(fc.integer({ min: -1, max: 32 }), { maxLength: 3 });

  const allocationsOf = (list: readonly { allocatedMs: number; length: number | null; releaseEstimated: boolean }[]) =>
    list
      .map(({ allocatedMs, length, releaseEstimated }, index): ReportedAllocation => {
        const releasedMs = length === null ? null : allocatedMs + length;
        return { generation: index, allocatedMs, releasedMs, releaseEstimated, organization };
      })
      .toSorted((a, b) => a.allocatedMs - b.allocatedMs || a.generation - b.generation);

  it('cover each moment of any allocation exactly once, for its owner at that moment', () => {
    fc.assert(
      fc.property(fc.array(told, { maxLength: 6 }), moves, (list, times) => {
        const allocations = allocationsOf(list);
        const owners = times
          .toSorted((a, b) => a - b)
          .map((movedMs, index) => {
            const [from, to] = [index, index + 1].map((name) => ({ id: String(name), name: String(name) }));
            if (from === undefined || to === undefined) throw new Error('two were made');
            return { movedMs, from, to };
          });
        const intervals = deriveIntervals(allocations, () => owners);
        for (let moment = 0; moment < horizon; moment += 1) {
          const held = allocations.filter(
            ({ allocatedMs, releasedMs }) => allocatedMs <= moment && moment < (releasedMs ?? horizon),
          );
          const covering = intervals.filter(
            ({ startedMs, endedMs }) => startedMs <= moment && moment < (endedMs ?? horizon),
          );
          const owner = owners.findLast(({ movedMs }) => movedMs <= moment)?.to ?? owners[0]?.from ?? organization;
          expect(covering.map((one) => one.organization)).toEqual(held.length === 0 ? [] : [owner]);
        }
        expect(intervals.every(({ startedMs, endedMs }) => endedMs === null || endedMs > startedMs)).toBe(true);
      }),
    );
  });

  it('are one per allocation, and end at its release', () => {
    fc.assert(
      fc.property(fc.array(told, { maxLength: 6 }), (list) => {
        const allocations = allocationsOf(list);
        const intervals = deriveIntervals(allocations, () => []);
        expect(new Set(intervals.map(({ generation }) => generation)).size).toBe(intervals.length);
        for (const { generation, endedMs, estimated } of intervals) {
          const allocation = allocations.find((one) => one.generation === generation);
          expect(endedMs).toBe(allocation?.releasedMs);
          expect(estimated).toBe(endedMs !== null && allocation?.releaseEstimated === true);
        }
      }),
    );
  });
});

describe('usage by segments', () => {
  interface Plain {
    readonly startedMs: number;
    readonly endedMs: number | null;
    readonly nodes: number;
    readonly gpuShares: number;
    readonly estimated: boolean;
  }

  interface Edge {
    readonly one: Plain;
    readonly segment: number;
    readonly isStart: boolean;
    /** Milliseconds since the beginning of the window. */
    readonly time: number;
  }

  function edgesOfOne(one: Plain, borders: readonly number[], fromMs: number, endMs: number): Edge[] {
    const segmentOf = (ms: number): number => borders.findLastIndex((border) => border <= ms);
    const start = Math.max(0, one.startedMs - fromMs);
    const end = Math.min(endMs, (one.endedMs ?? Number.POSITIVE_INFINITY) - fromMs);
    if (start >= endMs || end <= 0) return [];
    return [
      { one, segment: segmentOf(start), isStart: true, time: start },
      { one, segment: segmentOf(end - 1), isStart: false, time: end },
    ];
  }

  const totalOf = (numbers: readonly number[]): number => numbers.reduce((total, number) => total + number, 0);

  /** Edges of one kind in one segment. */
  function sumOf(edges: readonly Edge[], segment: number, isStart: boolean): EdgeSums {
    const outer = edges.map(({ one }) => (isStart ? one.startedMs : one.endedMs));
    const known = outer.filter((ms) => ms !== null);
    const outermost = isStart ? Math.min(...known) : Math.max(...known);
    return {
      snapshotId: 1,
      split: null,
      segment,
      isStart,
      intervals: edges.length,
      nodes: totalOf(edges.map(({ one }) => one.nodes)),
      gpuShares: totalOf(edges.map(({ one }) => one.gpuShares)),
      nodeTimes: BigInt(totalOf(edges.map(({ one, time }) => one.nodes * time))),
      gpuTimes: BigInt(totalOf(edges.map(({ one, time }) => one.gpuShares * time))),
      outerMs: known.length === outer.length ? outermost : null,
      lastStartMs: null,
      estimated: !isStart && edges.some(({ one }) => one.estimated),
    };
  }

  /** Computes the database's result by loops. */
  function edgesOf(intervals: readonly Plain[], borders: readonly number[], fromMs: number, endMs: number): EdgeSums[] {
    const edges = intervals.flatMap((one) => edgesOfOne(one, borders, fromMs, endMs));
    return borders.flatMap((_border, segment) =>
      [true, false].flatMap((isStart) => {
        const own = edges.filter((edge) => edge.segment === segment && edge.isStart === isStart);
        return own.length === 0 ? [] : [sumOf(own, segment, isStart)];
      }),
    );
  }

  it('is the sum over every millisecond of every interval, for any borders', () => {
    const plain = fc
      .record({
        startedMs: fc.integer({ min: 0, max: 60 }),
        length: fc.option(fc.integer({ min: 1, max: 40 })),
        nodes: fc.constantFrom(0, 1),
        // 28ths of a card: slices, and several cards.
        gpuShares: fc.constantFrom(4, 12, 28, 7, 224),
        estimated: fc.boolean(),
      })
      .map(({ length, ...rest }): Plain => ({ ...rest, endedMs: length === null ? null : rest.startedMs + length }));
    const borderList = fc.uniqueArray(fc.integer({ min: 1, max: 39 }), { maxLength: 6 });
    fc.assert(
      fc.property(
        fc.array(plain, { maxLength: 8 }),
        borderList,
        fc.integer({ min: 0, max: 30 }),
        (list, inner, fromMs) => {
          const endMs = 40;
          const borders = [0, ...inner.toSorted((a, b) => a - b)];
          const pieces = usedPieces(edgesOf(list, borders, fromMs, endMs), { borders, endMs }, fromMs);
          for (const [segment, begin] of borders.entries()) {
            const end = borders[segment + 1] ?? endMs;
            let [nodeMs, gpuMs, first, last] = [0, 0, end, begin];
            for (let moment = begin; moment < end; moment += 1) {
              const held = list.filter(
                ({ startedMs, endedMs }) =>
                  startedMs <= fromMs + moment && (endedMs === null || fromMs + moment < endedMs),
              );
              nodeMs += held.reduce((sum, { nodes }) => sum + nodes, 0);
              gpuMs += held.reduce((sum, { gpuShares }) => sum + gpuShares, 0);
              if (held.length > 0) [first, last] = [Math.min(first, moment), moment + 1];
            }
            const piece = pieces.find((one) => one.segment === segment);
            const shown = piece && [piece.nodeMs, piece.gpuShareMs, piece.startedMs, piece.endedMs];
            expect(shown).toEqual(gpuMs === 0 ? undefined : [BigInt(nodeMs), BigInt(gpuMs), first, last]);
          }
        },
      ),
      { numRuns: 300 },
    );
  });
});
