import { type FailureCause, failureCause } from './start-failure.ts';

/**
 * The life of an engine: stopped → starting → ready → draining → stopped, and failed with a cause. `step` decides,
 * from a state and what is known now, what comes next and what is to be done; it does nothing itself. All times are
 * monotonic milliseconds.
 *
 * A start that fails answers everybody who waits. It is tried again by a later request, after a pause that doubles
 * with each crash in a row. An engine that was ready and crashed is started again by itself (`recovering`), after the
 * same pause. With `crashesMax` crashes in a row it stays failed for `failedMs`.
 */
export type EngineState =
  | { readonly phase: 'stopped'; readonly sinceMs: number; readonly crashes: number }
  | StartingState
  | { readonly phase: 'ready'; readonly sinceMs: number; readonly crashes: number }
  | {
      readonly phase: 'draining';
      readonly sinceMs: number;
      readonly crashes: number;
      /** When requests are no longer waited for. */
      readonly deadlineMs: number;
      /** The driver was told to stop it. */
      readonly stopping: boolean;
    }
  | {
      readonly phase: 'failed';
      readonly sinceMs: number;
      readonly crashes: number;
      readonly cause: FailureCause;
      /** From then on a request may start it again. */
      readonly retryAtMs: number;
    };

interface StartingState {
  readonly phase: 'starting';
  readonly sinceMs: number;
  readonly crashes: number;
  /** When the driver may be told to run it; later than `sinceMs` while a crash is waited out. */
  readonly runAtMs: number;
  /** The driver was told to run it, or it was found running. */
  readonly running: boolean;
  readonly deadlineMs: number;
  /** What it is called when the deadline passes. */
  readonly late: 'timeout' | 'unreachable';
  /** It was ready before: started again whether anybody waits or not. */
  readonly recovering: boolean;
}

export type EnginePhase = EngineState['phase'];

export interface EngineFacts {
  readonly nowMs: number;
  readonly leases: number;
  readonly waiting: number;
  /** Since when nothing has used it; null while something does. */
  readonly idleSinceMs: number | null;
  readonly replicasRunning: number;
  readonly replicasStopping: number;
  /** At least one running replica may be routed to. */
  readonly healthy: boolean;
  /** Set once, when a replica ended that nobody had asked to. */
  readonly crash: FailureCause | null;
  readonly closing: boolean;
}

export interface EnginePolicy {
  /** Infinity: never stopped for being idle. */
  readonly idleMs: number;
  readonly startTimeoutMs: number;
  readonly drainMs: number;
  readonly crashesMax: number;
  /** Pause after the first crash in a row; doubles up to `backoffMaxMs`. */
  readonly backoffFirstMs: number;
  readonly backoffMaxMs: number;
  readonly failedMs: number;
  /** Ready for this long, an engine's earlier crashes are forgotten. */
  readonly stableMs: number;
  /** How long an engine that stopped answering gets to answer again or to end. */
  readonly unreachableMs: number;
}

export type EngineAction =
  | { readonly type: 'run' }
  | { readonly type: 'stop' }
  | { readonly type: 'serve' }
  | { readonly type: 'refuse'; readonly cause: FailureCause; readonly retryAtMs: number };

export interface Step {
  readonly state: EngineState;
  readonly actions: readonly EngineAction[];
}

export function initialState(nowMs: number): EngineState {
  return { phase: 'stopped', sinceMs: nowMs, crashes: 0 };
}

/** What follows from the facts. The same state object comes back when nothing changes. */
export function step(state: EngineState, facts: EngineFacts, policy: EnginePolicy): Step {
  switch (state.phase) {
    case 'stopped':
      return stepStopped(state, facts, policy);
    case 'starting':
      return stepStarting(state, facts, policy);
    case 'ready':
      return stepReady(state, facts, policy);
    case 'draining':
      return stepDraining(state, facts);
    case 'failed':
      return stepFailed(state, facts, policy);
  }
}

/** When time alone will change something; Infinity when it will not. */
export function dueAtMs(state: EngineState, facts: EngineFacts, policy: EnginePolicy): number {
  switch (state.phase) {
    case 'starting':
      return state.running ? state.deadlineMs : state.runAtMs;
    case 'ready':
      return facts.idleSinceMs === null ? Infinity : facts.idleSinceMs + policy.idleMs;
    case 'draining':
      return state.stopping ? Infinity : state.deadlineMs;
    case 'stopped':
    case 'failed':
      return Infinity;
  }
}

type StateOf<Phase extends EnginePhase> = Extract<EngineState, { phase: Phase }>;

function stepStopped(state: StateOf<'stopped'>, facts: EngineFacts, policy: EnginePolicy): Step {
  if (facts.closing) return stay(state);
  if (facts.replicasRunning > 0) return stay(found(state, facts, policy));
  // One that is still ending holds its memory: the next one waits for it.
  if (facts.waiting > 0 && facts.replicasStopping === 0) return begin(state, facts, policy);
  return stay(state);
}

function stepStarting(state: StartingState, facts: EngineFacts, policy: EnginePolicy): Step {
  if (facts.closing) return { state: drain(state, facts, 0), actions: [] };
  if (facts.crash !== null) return crash(state, facts.crash, facts, policy);
  if (facts.healthy) return { state: becomeReady(state, facts), actions: [{ type: 'serve' }] };
  if (!state.running) {
    const free = facts.replicasRunning + facts.replicasStopping === 0;
    if (!free || facts.nowMs < state.runAtMs) return stay(state);
    return begin(state, facts, policy);
  }
  if (facts.nowMs < state.deadlineMs) return stay(state);
  const late = crash(state, failureCause(state.late), facts, policy);
  return { state: late.state, actions: [{ type: 'stop' }, ...late.actions] };
}

function stepReady(state: StateOf<'ready'>, facts: EngineFacts, policy: EnginePolicy): Step {
  if (facts.closing) return { state: drain(state, facts, policy.drainMs), actions: [] };
  if (facts.crash !== null) return crash(state, facts.crash, facts, policy);
  if (facts.replicasRunning === 0) return crash(state, failureCause('vanished'), facts, policy);
  if (!facts.healthy) return stay(loseHealth(state, facts, policy));
  if (facts.waiting > 0) return { state, actions: [{ type: 'serve' }] };
  if (facts.idleSinceMs === null || facts.nowMs - facts.idleSinceMs < policy.idleMs) return stay(state);
  return { state: drain(state, facts, policy.drainMs), actions: [] };
}

function stepDraining(state: StateOf<'draining'>, facts: EngineFacts): Step {
  if (facts.replicasRunning + facts.replicasStopping === 0) return stay(stop(facts));
  if (state.stopping) return stay(state);
  if (facts.leases > 0 && facts.nowMs < state.deadlineMs) return stay(state);
  return { state: { ...state, stopping: true }, actions: [{ type: 'stop' }] };
}

function stepFailed(state: StateOf<'failed'>, facts: EngineFacts, policy: EnginePolicy): Step {
  if (facts.waiting === 0 || facts.closing) return stay(state);
  if (facts.nowMs < state.retryAtMs) {
    return { state, actions: [{ type: 'refuse', cause: state.cause, retryAtMs: state.retryAtMs }] };
  }
  if (facts.replicasRunning + facts.replicasStopping > 0) return stay(state);
  return begin(state, facts, policy);
}

// The named transitions: nothing else makes a new state.

function stay(state: EngineState): Step {
  return { state, actions: [] };
}

function begin(state: EngineState, { nowMs }: EngineFacts, policy: EnginePolicy): Step {
  const recovering = state.phase === 'starting' && state.recovering;
  const sinceMs = state.phase === 'starting' ? state.sinceMs : nowMs;
  const next: StartingState = {
    phase: 'starting',
    sinceMs,
    crashes: state.crashes,
    runAtMs: nowMs,
    running: true,
    deadlineMs: nowMs + policy.startTimeoutMs,
    late: 'timeout',
    recovering,
  };
  return { state: next, actions: [{ type: 'run' }] };
}

/** It runs although this gateway did not start it: an earlier one did. */
function found(state: EngineState, { nowMs }: EngineFacts, policy: EnginePolicy): StartingState {
  return {
    phase: 'starting',
    sinceMs: nowMs,
    crashes: state.crashes,
    runAtMs: nowMs,
    running: true,
    deadlineMs: nowMs + policy.startTimeoutMs,
    late: 'timeout',
    recovering: false,
  };
}

function becomeReady(state: StartingState, { nowMs }: EngineFacts): EngineState {
  return { phase: 'ready', sinceMs: nowMs, crashes: state.crashes };
}

function loseHealth(state: StateOf<'ready'>, { nowMs }: EngineFacts, policy: EnginePolicy): StartingState {
  return {
    phase: 'starting',
    sinceMs: nowMs,
    crashes: state.crashes,
    runAtMs: nowMs,
    running: true,
    deadlineMs: nowMs + policy.unreachableMs,
    late: 'unreachable',
    recovering: true,
  };
}

function drain(state: EngineState, { nowMs }: EngineFacts, drainMs: number): EngineState {
  const deadlineMs = nowMs + drainMs;
  return { phase: 'draining', sinceMs: nowMs, crashes: state.crashes, deadlineMs, stopping: false };
}

function stop({ nowMs }: EngineFacts): EngineState {
  return { phase: 'stopped', sinceMs: nowMs, crashes: 0 };
}

function crash(
  state: StartingState | StateOf<'ready'>,
  cause: FailureCause,
  { nowMs }: EngineFacts,
  policy: EnginePolicy,
): Step {
  const stable = state.phase === 'ready' && nowMs - state.sinceMs >= policy.stableMs;
  const crashes = stable ? 1 : state.crashes + 1;
  const retryAtMs = nowMs + backoffMs(crashes, policy);
  const refuse: EngineAction = { type: 'refuse', cause, retryAtMs };
  const recovering = state.phase === 'ready' || state.recovering;
  if (recovering && crashes < policy.crashesMax) {
    const next: StartingState = {
      phase: 'starting',
      sinceMs: nowMs,
      crashes,
      runAtMs: retryAtMs,
      running: false,
      deadlineMs: retryAtMs + policy.startTimeoutMs,
      late: 'timeout',
      recovering: true,
    };
    // Who waited for a start that failed hears so; who came since a ready engine crashed waits for the next one.
    return { state: next, actions: state.phase === 'starting' && state.late === 'timeout' ? [refuse] : [] };
  }
  return { state: { phase: 'failed', sinceMs: nowMs, crashes, cause, retryAtMs }, actions: [refuse] };
}

function backoffMs(crashes: number, policy: EnginePolicy): number {
  if (crashes >= policy.crashesMax) return policy.failedMs;
  return Math.min(policy.backoffFirstMs * 2 ** (crashes - 1), policy.backoffMaxMs);
}
