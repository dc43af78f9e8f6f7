import type { Clock } from '#base/clock.ts';
import type { Log } from '#base/log.ts';
import {
  type DriverType,
  type EngineDriver,
  explainExit,
  failedStart,
  type FailureCause,
  failureCause,
  type Fence,
  FenceLostError,
  type GpuUse,
  type ObservedReplica,
  type Replica,
  startErrors,
} from '#core/fleet/drivers/drivers.ts';
import {
  driverType,
  type EngineState,
  jobKey,
  type JobReport,
  type LeaderAction,
  type LeaderState,
  type ReplicaPhase,
  specOf,
} from '#core/fleet/plan/plan.ts';
import { settingsOf } from '#core/fleet/policy.ts';
import type { EngineRequests, ReplicaRuns } from '#core/fleet/runs/runs.ts';
import { askEngine, noAnswerText } from '#core/fleet/serving/serving.ts';
import { checkAwake, checkProgress, checkReplica, type CheckResult } from './checks.ts';

/** vLLM's sleep mode: an idle engine frees its GPU memory and keeps its process. */

/** A level 1 sleep takes as long as copying the weights to memory. */
const sleepTimeoutMs = 120_000;
const wakeTimeoutMs = 600_000;
/** One token takes less on an engine that works, and more than this only if the engine shows progress. */
const canaryTimeoutMsMax = 30_000;

/** Calls vLLM's development routes, which answer when the change is complete. */
async function putToSleep(replica: Replica, level: 1 | 2): Promise<FailureCause | null> {
  return control(replica, [`/sleep?level=${level}`], sleepTimeoutMs);
}

/**
 * Wakes an engine. After level 2 the weights are reloaded between the two halves of the wake-up, as vLLM documents it.
 */
async function wakeUp(replica: Replica, level: 1 | 2): Promise<FailureCause | null> {
  if (level === 1) return control(replica, ['/wake_up'], wakeTimeoutMs);
  return control(
    replica,
    ['/wake_up?tags=weights', '/collective_rpc', '/wake_up?tags=kv_cache', '/reset_prefix_cache'],
    wakeTimeoutMs,
  );
}

async function control(replica: Replica, paths: readonly string[], timeoutMs: number): Promise<FailureCause | null> {
  for (const path of paths) {
    const body = path === '/collective_rpc' ? { body: { method: 'reload_weights' } } : {};
    const answer = await askEngine(replica, { method: 'POST', path, timeoutMs, ...body });
    const status = typeof answer === 'string' ? noAnswerText[answer] : `status ${answer.status}`;
    if (typeof answer === 'string' || answer.status !== 200) return failureCause('probe_failed', `${path}: ${status}`);
    // vLLM reports this since 0.32. The weights are the first half of a wake-up.
    const isAsleep = path.startsWith('/wake_up') && /"status"\s*:\s*"sleeping"/.test(answer.text);
    if (isAsleep && !path.endsWith('=weights'))
      return failureCause('probe_failed', `${path}: the engine is still asleep`);
  }
  return null;
}

export interface JobsOptions {
  readonly drivers: ReadonlyMap<DriverType, EngineDriver>;
  readonly fence: Fence;
  readonly clock: Clock;
  readonly log: Log;
  readonly stopGraceMs: number;
  readonly runs: ReplicaRuns | null;
  readonly engineRequests: EngineRequests | null;
  readonly wake: () => void;
}

/** Actions that a leader has begun, with their reports until the state has recorded them. */
export interface Jobs {
  reports(): ReadonlyMap<string, JobReport>;
  /** Begins an action. Does nothing if the action is running, or its report is not recorded yet. */
  begin(action: LeaderAction, state: LeaderState, observed: ReadonlyMap<string, ObservedReplica>): void;
  /** Drops the reports that the state has recorded. */
  settle(state: LeaderState, nowMs: number): void;
}

interface Job {
  readonly action: LeaderAction;
  report: JobReport;
  endedAtMs: number;
}

interface JobResult extends CheckResult {
  readonly uses: readonly GpuUse[] | null;
}

/** Delay before a stop or forget without effect is repeated. */
const repeatAfterMs = 1000;
const fine: JobResult = { cause: null, abortFault: null, uses: null };

export function createJobs(options: JobsOptions): Jobs {
  const { clock, log, wake } = options;
  const jobs = new Map<string, Job>();

  function begin(action: LeaderAction, state: LeaderState, observed: ReadonlyMap<string, ObservedReplica>): void {
    const key = keyOf(action);
    if (jobs.has(key)) return;
    const engine = state.engines.find(({ id }) => id === action.engineId);
    if (engine === undefined) return;
    const job: Job = { action, report: { state: 'pending' }, endedAtMs: Infinity };
    jobs.set(key, job);
    const found = action.type === 'probe_gpus' ? undefined : observed.get(action.replicaId);
    void run(options, action, engine, found)
      .then((result): JobReport => ({ state: 'done', ...result }))
      .catch((error: unknown) => reportOf(log, action, error))
      .then((report) => {
        job.report = report;
        job.endedAtMs = clock.monotonicMs();
        wake();
      });
  }

  return {
    reports: () => new Map([...jobs].map(([key, { report }]) => [key, report])),
    begin,
    settle(state, nowMs) {
      for (const [key, { action, report, endedAtMs }] of jobs) {
        if (report.state !== 'pending' && isNoted(action, state, nowMs - endedAtMs)) jobs.delete(key);
      }
    },
  };
}

function keyOf(action: LeaderAction): string {
  return jobKey(action.type, action.type === 'probe_gpus' ? action.key : action.replicaId);
}

const phaseOf: Partial<Record<LeaderAction['type'], ReplicaPhase>> = {
  check: 'checking',
  wake: 'waking',
  sleep: 'draining',
};

function isNoted(action: LeaderAction, state: LeaderState, ageMs: number): boolean {
  const engine = state.engines.find(({ id }) => id === action.engineId);
  if (action.type === 'probe_gpus') {
    const claim = engine?.claim ?? null;
    return claim === null || action.key !== `${action.engineId}:${claim.sinceMs}:${claim.tries}`;
  }
  if (action.type === 'stop' || action.type === 'forget') return ageMs >= repeatAfterMs;
  const replica = engine?.replicas.find(({ id }) => id === action.replicaId);
  if (action.type === 'canary') return replica?.canaryRuns !== true;
  if (action.type === 'start') return replica === undefined || replica.observed;
  return replica?.phase !== phaseOf[action.type];
}

function reportOf(log: Log, action: LeaderAction, error: unknown): JobReport {
  const { type, engineId } = action;
  if (error instanceof FenceLostError) {
    log.info({ engine: engineId, action: type }, error.message);
    return { state: 'called_off' };
  }
  log.error(
    { engine: engineId, action: type, err: error },
    'a step of starting or stopping an engine failed (see action); the gateway retries while the step is needed',
  );
  // A device that cannot be read now is read again; see judgeMemory.
  const failureText = error instanceof Error ? error.message : String(error);
  return { ...fine, state: 'done', cause: explainExit(failedStart(startErrors.unknown, failureText)) };
}

async function run(
  options: JobsOptions,
  action: LeaderAction,
  engine: EngineState,
  found: ObservedReplica | undefined,
): Promise<JobResult> {
  const { fence, stopGraceMs } = options;
  const driver = options.drivers.get(driverType(engine));
  if (driver === undefined) throw new Error('No driver is available for this engine.');
  switch (action.type) {
    case 'start': {
      const { replicaId, spec, placement } = action;
      options.runs?.starting(replicaId);
      await driver.start({ replicaId, spec, placement, fence });
      return fine;
    }
    case 'stop':
      if (found !== undefined) await options.runs?.lastReading(found.replica);
      await driver.stop(action.replicaId, { fence, graceMs: stopGraceMs });
      return fine;
    case 'forget':
      await driver.forget(action.replicaId, fence);
      return fine;
    case 'probe_gpus':
      return { ...fine, uses: await driver.probeGpus(action.placement) };
    default:
      return { ...fine, ...(await tryOut(options, action.type, engine, found)) };
  }
}

const unreliableAborts =
  'an engine of an untried version failed the check of aborts by id: it serves, and the gateway closes the connections of requests that end early';
const aboutOf = ({ engineId, id }: Replica): object => ({ engine: engineId, replica: id });

/** Runs the requests to the engine itself: checks, sleep and wake-up. */
async function tryOut(
  { engineRequests, clock, log }: JobsOptions,
  type: 'check' | 'canary' | 'sleep' | 'wake',
  engine: EngineState,
  found: ObservedReplica | undefined,
): Promise<Partial<CheckResult>> {
  if (found === undefined) return { cause: failureCause('vanished') };
  const { replica } = found;
  // A replica started after a newer file was rejected must not be checked with that file's canaries.
  const spec = specOf(engine, found.specHash);
  const { startTimeoutMs: timeoutMs, sleepLevel } = settingsOf(spec.definition);
  // The first answers may take minutes while kernels are compiled. One bound covers the whole start.
  const checked = { replica, definition: spec.definition, timeoutMs, engineRequests, clock };
  if (type === 'check') {
    const result = await checkReplica(checked);
    if (result.abortFault !== null) log.warn({ ...aboutOf(replica), detail: result.abortFault }, unreliableAborts);
    return result;
  }
  if (type === 'canary') {
    const { wedgedMs } = engine.spec.definition;
    const ownMs = Math.min(wedgedMs ?? canaryTimeoutMsMax, canaryTimeoutMsMax);
    return { cause: await checkProgress({ ...checked, timeoutMs: ownMs }) };
  }
  const level = sleepLevel === 2 ? 2 : 1;
  if (type === 'sleep') return { cause: await putToSleep(replica, level) };
  return { cause: (await wakeUp(replica, level)) ?? (await checkAwake(checked)) };
}
