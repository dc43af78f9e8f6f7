import { describe, expect, it } from 'vitest';
import { Outliers, type OutlierChange, type ReplicaOutcome } from '#core/routing/outliers.ts';

const four = ['a', 'b', 'c', 'd'].map((id) => ({ id }));

interface Reported {
  readonly trial?: boolean;
  readonly replicaCount?: number;
  readonly atMs?: number;
}

function report(outliers: Outliers, replicaId: string, outcome: ReplicaOutcome, over: Reported = {}): OutlierChange {
  const { trial = false, replicaCount = 4, atMs = 0 } = over;
  return outliers.report({ replicaId, outcome, trial, replicaCount }, atMs);
}

const admitted = (outliers: Outliers): string =>
  outliers
    .admitted(four)
    .map(({ id }) => id)
    .join('');

function failing(...ids: string[]): Outliers {
  const outliers = new Outliers();
  for (const id of ids) for (let failure = 0; failure < 5; failure += 1) report(outliers, id, 'failed');
  return outliers;
}

describe('a failing replica', () => {
  it('stays admitted below five failures in a row', () => {
    const outliers = new Outliers();
    for (let round = 0; round < 4; round += 1) {
      for (let failure = 0; failure < 4; failure += 1) report(outliers, 'a', 'failed', { atMs: round * 20_000 });
      report(outliers, 'a', 'answered', { atMs: round * 20_000 });
    }
    expect(admitted(outliers)).toBe('abcd');
  });

  it('is ejected after five failures in a row', () => {
    expect(admitted(failing('b'))).toBe('acd');
  });

  it('is ejected when half of many requests fail, though never five in a row', () => {
    const outliers = new Outliers();
    const changes = Array.from({ length: 24 }, (_, at) => report(outliers, 'a', at % 2 === 0 ? 'answered' : 'failed'));
    // The first answer of a replica that never failed is not counted.
    expect(changes).toContain('ejected');
    expect(admitted(outliers)).toBe('bcd');
  });

  it('is ejected at once when it is unreachable', () => {
    const outliers = new Outliers();
    expect(report(outliers, 'a', 'unreachable')).toBe('ejected');
    expect(admitted(outliers)).toBe('bcd');
  });

  it('is not judged by requests that ended early', () => {
    const outliers = new Outliers();
    for (let request = 0; request < 50; request += 1) report(outliers, 'a', 'unknown');
    expect(outliers.clean).toBe(true);
  });
});

describe('the number of ejected replicas', () => {
  it('is at most half of the replicas when they fail', () => {
    expect(admitted(failing('a', 'b', 'c'))).toBe('cd');
  });

  it('is 0 of one replica, and 1 of two', () => {
    const outliers = new Outliers();
    for (let failure = 0; failure < 50; failure += 1) report(outliers, 'a', 'failed', { replicaCount: 1 });
    expect(outliers.admitted([{ id: 'a' }])).toEqual([{ id: 'a' }]);
    for (let failure = 0; failure < 5; failure += 1) report(outliers, 'b', 'failed', { replicaCount: 2 });
    expect(outliers.admitted([{ id: 'a' }, { id: 'b' }])).toEqual([{ id: 'a' }]);
  });

  it('is unlimited for unreachable replicas, and all are tried when all are ejected', () => {
    const outliers = failing('a', 'b');
    report(outliers, 'c', 'unreachable');
    expect(admitted(outliers)).toBe('d');
    report(outliers, 'd', 'unreachable');
    expect(admitted(outliers)).toBe('abcd');
  });
});

describe('the readmission of a replica', () => {
  it('allows one trial request after the ejection time, and no second one beside it', () => {
    const outliers = failing('a');
    expect(outliers.due(four, 4_999)).toBeNull();
    expect(outliers.due(four, 5_000)).toEqual({ id: 'a' });
    outliers.tried('a', 5_000);
    expect(outliers.due(four, 5_001)).toBeNull();
    expect(admitted(outliers)).toBe('bcd');
  });

  it('follows an answered trial', () => {
    const outliers = failing('a');
    outliers.tried('a', 5_000);
    expect(report(outliers, 'a', 'answered', { trial: true, atMs: 5_100 })).toBe('readmitted');
    expect(admitted(outliers)).toBe('abcd');
  });

  it('takes longer after each failed trial, up to two minutes', () => {
    const outliers = failing('a');
    let atMs = 0;
    const times: number[] = [];
    for (let round = 0; round < 30; round += 1) {
      const sinceMs = atMs;
      while (outliers.due(four, atMs) === null) atMs += 1000;
      times.push(atMs - sinceMs);
      outliers.tried('a', atMs);
      expect(report(outliers, 'a', 'failed', { trial: true, atMs })).toBe('ejected');
    }
    expect(times.slice(0, 4)).toEqual([5_000, 10_000, 15_000, 20_000]);
    expect(times.at(-1)).toBe(120_000);
  });

  it('is not affected by requests that were sent before the ejection', () => {
    const outliers = failing('a');
    for (let late = 0; late < 10; late += 1) expect(report(outliers, 'a', 'failed')).toBeNull();
    expect(report(outliers, 'a', 'answered')).toBeNull();
    expect(outliers.due(four, 5_000)).toEqual({ id: 'a' });
    expect(admitted(outliers)).toBe('bcd');
  });

  it('allows another trial when the outcome of the first is never reported', () => {
    const outliers = failing('a');
    outliers.tried('a', 5_000);
    expect(outliers.due(four, 10_000)).toEqual({ id: 'a' });
  });

  it('forgets a past failure after a long time of success', () => {
    const outliers = failing('a');
    outliers.tried('a', 5_000);
    report(outliers, 'a', 'answered', { trial: true, atMs: 5_000 });
    report(outliers, 'a', 'answered', { atMs: 70_000 });
    expect(outliers.clean).toBe(true);
  });
});
