import { describe, expect, it } from 'vitest';
import {
  dueAtMs,
  type EngineFacts,
  type EnginePolicy,
  type EngineState,
  initialState,
  step,
} from '#core/fleet/engine-state.ts';
import { failureCause } from '#core/fleet/start-failure.ts';

const policy: EnginePolicy = {
  idleMs: 1000,
  startTimeoutMs: 5000,
  drainMs: 300,
  crashesMax: 3,
  backoffFirstMs: 100,
  backoffMaxMs: 150,
  failedMs: 9000,
  stableMs: 50_000,
  unreachableMs: 700,
};
const quiet: EngineFacts = {
  nowMs: 0,
  leases: 0,
  waiting: 0,
  idleSinceMs: 0,
  replicasRunning: 0,
  replicasStopping: 0,
  healthy: false,
  crash: null,
  closing: false,
};
const crash = failureCause('crashed');

function after(state: EngineState, over: Partial<EngineFacts>) {
  return step(state, { ...quiet, ...over }, policy);
}

/** States as they come about, by the named transitions alone. */
const stopped = initialState(0);
const starting = after(stopped, { waiting: 1 }).state;
const ready = after(starting, { nowMs: 10, waiting: 1, replicasRunning: 1, healthy: true }).state;
const up = { replicasRunning: 1, healthy: true };

describe('nothing is started', () => {
  it('without a request', () => {
    expect(after(stopped, {})).toEqual({ state: stopped, actions: [] });
  });
  it('while the gateway closes', () => {
    expect(after(stopped, { waiting: 1, closing: true }).actions).toEqual([]);
  });
  it('while the replica before it still ends and holds its memory', () => {
    expect(after(stopped, { waiting: 1, replicasStopping: 1 }).actions).toEqual([]);
  });
  it('before the pause after a failed start is over; who asks hears the cause', () => {
    const failed = after(starting, { nowMs: 50, waiting: 2, crash }).state;
    expect(failed).toMatchObject({ phase: 'failed', cause: crash, retryAtMs: 150 });
    expect(after(failed, { nowMs: 149, waiting: 1 }).actions).toEqual([
      { type: 'refuse', cause: crash, retryAtMs: 150 },
    ]);
    expect(after(failed, { nowMs: 150, waiting: 1 })).toMatchObject({
      state: { phase: 'starting' },
      actions: [{ type: 'run' }],
    });
  });
});

describe('a start', () => {
  it('serves all who wait when it is healthy', () => {
    expect(after(starting, { waiting: 3, ...up })).toMatchObject({
      state: { phase: 'ready' },
      actions: [{ type: 'serve' }],
    });
  });
  it('answers all who wait when it fails, and is not repeated by itself', () => {
    const { state, actions } = after(starting, { waiting: 3, crash });
    expect(state.phase).toBe('failed');
    expect(actions).toEqual([{ type: 'refuse', cause: crash, retryAtMs: 100 }]);
    expect(after(state, { nowMs: 1_000_000 })).toEqual({ state, actions: [] });
  });
  it('is stopped and answered for when it is late', () => {
    expect(after(starting, { nowMs: 4999, replicasRunning: 1 }).state).toBe(starting);
    const late = after(starting, { nowMs: 5000, replicasRunning: 1 });
    expect(late.actions.map(({ type }) => type)).toEqual(['stop', 'refuse']);
    expect(late.state).toMatchObject({ phase: 'failed', cause: { kind: 'timeout' } });
  });
  it('is given up when the gateway closes', () => {
    const draining = after(starting, { closing: true, replicasRunning: 1 }).state;
    expect(after(draining, { closing: true, replicasRunning: 1 }).actions).toEqual([{ type: 'stop' }]);
  });
  it('is not repeated for a replica that an earlier gateway left running', () => {
    const { state, actions } = after(stopped, { replicasRunning: 1 });
    expect(state.phase).toBe('starting');
    expect(actions).toEqual([]);
    expect(after(state, up).state.phase).toBe('ready');
  });
});

describe('a crash of a ready engine', () => {
  it('is followed by a start after a pause that doubles up to its bound, then by failing for longer', () => {
    const pauses: number[] = [];
    let state = ready;
    for (let nowMs = 100; state.phase === 'ready'; nowMs += 10_000) {
      state = after(state, { nowMs, crash }).state;
      if (state.phase === 'failed') pauses.push(state.retryAtMs - nowMs);
      if (state.phase !== 'starting') break;
      pauses.push(state.runAtMs - nowMs);
      expect(after(state, { nowMs: state.runAtMs - 1 }).actions).toEqual([]);
      const again = after(state, { nowMs: state.runAtMs });
      expect(again.actions).toEqual([{ type: 'run' }]);
      state = after(again.state, { nowMs: state.runAtMs + 1, ...up }).state;
    }
    expect(pauses).toEqual([100, 150, 9000]);
  });
  it('lets those wait who come in the meantime', () => {
    expect(after(ready, { waiting: 2, crash }).actions).toEqual([]);
  });
  it('counts from one again when it had been ready for long', () => {
    expect(after({ ...ready, crashes: 2 }, { nowMs: 49_999, crash }).state.phase).toBe('failed');
    expect(after({ ...ready, crashes: 2 }, { nowMs: 50_010, crash }).state).toMatchObject({
      phase: 'starting',
      crashes: 1,
    });
  });
  it('is also what a replica is that vanished', () => {
    expect(after(ready, {}).state).toMatchObject({ phase: 'starting', crashes: 1 });
  });
  it('is also what a replica is that answers no more, once its time is over', () => {
    const lost = after(ready, { nowMs: 100, replicasRunning: 1 }).state;
    expect(lost).toMatchObject({ phase: 'starting', crashes: 0, deadlineMs: 800 });
    expect(after(lost, { nowMs: 200, ...up }).state.phase).toBe('ready');
    const over = after(lost, { nowMs: 800, replicasRunning: 1, waiting: 1 });
    expect(over).toMatchObject({ state: { phase: 'starting', crashes: 1 }, actions: [{ type: 'stop' }] });
    expect(after(over.state, { nowMs: 5000, replicasStopping: 1 }).actions).toEqual([]);
    expect(after(over.state, { nowMs: 5000 }).actions).toEqual([{ type: 'run' }]);
  });
});

describe('a stop', () => {
  it('comes when nothing was used for the idle time, and forgets crashes', () => {
    const busy = { ...ready, crashes: 1 };
    expect(after(busy, { nowMs: 999_999, idleSinceMs: null, leases: 1, ...up }).state).toBe(busy);
    expect(after(busy, { nowMs: 1099, idleSinceMs: 100, ...up }).state).toBe(busy);
    const draining = after(busy, { nowMs: 1100, idleSinceMs: 100, ...up }).state;
    const stopping = after(draining, { nowMs: 1100, ...up });
    expect(stopping.actions).toEqual([{ type: 'stop' }]);
    expect(after(stopping.state, { nowMs: 1200, replicasStopping: 1 }).state).toBe(stopping.state);
    expect(after(stopping.state, { nowMs: 1300 }).state).toEqual({ phase: 'stopped', sinceMs: 1300, crashes: 0 });
  });
  it('waits for leases, but no longer than the drain time', () => {
    const draining = after(ready, { nowMs: 100, leases: 1, closing: true, ...up }).state;
    expect(after(draining, { nowMs: 399, leases: 1, closing: true, ...up }).actions).toEqual([]);
    expect(after(draining, { nowMs: 399, leases: 0, closing: true, ...up }).actions).toEqual([{ type: 'stop' }]);
    expect(after(draining, { nowMs: 400, leases: 1, closing: true, ...up }).actions).toEqual([{ type: 'stop' }]);
  });
});

describe('time', () => {
  it('is asked for exactly where it decides', () => {
    const due = (state: EngineState, over: Partial<EngineFacts> = {}) => dueAtMs(state, { ...quiet, ...over }, policy);
    expect(due(stopped)).toBe(Infinity);
    expect(due(starting)).toBe(5000);
    expect(due(ready, { idleSinceMs: 40 })).toBe(1040);
    expect(due(ready, { idleSinceMs: null })).toBe(Infinity);
    expect(due(after(ready, { nowMs: 100, crash }).state)).toBe(200);
    expect(due(after(ready, { nowMs: 100, closing: true, leases: 1, ...up }).state)).toBe(400);
  });
});
