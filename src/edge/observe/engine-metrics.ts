import type { CounterSeries, Family, HistogramSeries, Metrics } from '#base/metrics/metrics.ts';
import type { EngineView, Fleet } from '#core/fleet/fleet.ts';

/** Metrics of engines, computed from `fleet.list()` and `fleet.leads()`. */
export interface EngineMetrics {
  /** Compares the engines with the last call, and counts starts and failures since then. */
  update(): void;
}

/** All phases, so that each has a series from the start. A new phase does not compile without an entry here. */
const phases: Record<EngineView['phase'], true> = {
  stopped: true,
  starting: true,
  ready: true,
  draining: true,
  retrying: true,
  failed: true,
  held: true,
  off: true,
};
const replicaStates: Record<EngineView['replicas'][number]['state'], true> = {
  creating: true,
  starting: true,
  checking: true,
  ready: true,
  draining: true,
  stopping: true,
  asleep: true,
  waking: true,
};
const labelNames = ['engine'];
/** Seconds. */
const startBounds = [1, 2.5, 5, 10, 20, 30, 45, 60, 90, 120, 180, 300, 600, 1200, 1800];

export function createEngineMetrics(metrics: Metrics, fleet: Pick<Fleet, 'list' | 'leads'>): EngineMetrics {
  addGauges(metrics, fleet);
  const starts = metrics.histogram(
    {
      name: 'headgate_engine_start_duration_seconds',
      help: 'Duration of successful engine starts',
      labelNames,
    },
    startBounds,
  );
  const failures = metrics.counter({
    name: 'headgate_engine_failures_total',
    help: 'Failures of an engine: failed starts and repeated crashes',
    labelNames,
  });
  const wedges = metrics.counter({
    name: 'headgate_engine_wedges_total',
    help: 'Replicas that answered their probes and generated nothing',
    labelNames,
  });
  let seen = new Map<string, EngineView>();
  return {
    update() {
      const views = fleet.list();
      for (const view of views) compare(view, seen.get(view.engineId), { starts, failures, wedges });
      seen = new Map(views.map((view) => [view.engineId, view]));
    },
  };
}

interface Counters {
  readonly starts: Family<HistogramSeries>;
  readonly failures: Family<CounterSeries>;
  readonly wedges: Family<CounterSeries>;
}

function compare(view: EngineView, before: EngineView | undefined, { starts, failures, wedges }: Counters): void {
  // Creates both series from the start: a first failure shows as an increase only from zero.
  const started = starts.of(view.engineId);
  const failed = failures.of(view.engineId);
  const wedged = wedges.of(view.engineId);
  const { lastStartMs, phase, sinceMs } = view;
  if (lastStartMs !== null && lastStartMs !== before?.lastStartMs) started.observe(lastStartMs / 1000);
  if (isFailure(phase) && (!isFailure(before?.phase) || !isSameMoment(before?.sinceMs ?? 0, sinceMs))) failed.add(1);
  wedged.add(Math.max(0, view.wedges - (before?.wedges ?? view.wedges)));
}

const isFailure = (phase: EngineView['phase'] | undefined): boolean => phase === 'failed' || phase === 'retrying';

/** True if two moments are within 500 ms: each view computes its moments from two clocks that drift apart slightly. */
function isSameMoment(oneMs: number, otherMs: number): boolean {
  return Math.abs(oneMs - otherMs) < 500;
}

function addGauges(metrics: Metrics, fleet: Pick<Fleet, 'list' | 'leads'>): void {
  metrics.gauge(
    {
      name: 'headgate_engine_state',
      help: '1 for the current phase of an engine, 0 for all other phases',
      labelNames: ['engine', 'phase'],
    },
    (set) => {
      for (const { engineId, phase } of fleet.list()) {
        for (const each of Object.keys(phases)) set(each === phase ? 1 : 0, engineId, each);
      }
    },
  );
  metrics.gauge(
    { name: 'headgate_engine_replicas', help: 'Replicas of an engine, by state', labelNames: ['engine', 'state'] },
    (set) => {
      for (const { engineId, replicas } of fleet.list()) {
        for (const state of Object.keys(replicaStates)) {
          set(replicas.filter((replica) => replica.state === state).length, engineId, state);
        }
      }
    },
  );
  metrics.gauge(
    {
      name: 'headgate_engine_version',
      help: 'Replicas that run a version of vLLM; tried is "true" for versions that this version of Headgate was tried with',
      labelNames: ['engine', 'version', 'tried'],
    },
    (set) => {
      for (const { engineId, replicas } of fleet.list()) {
        const versions = replicas.flatMap(({ version }) => version ?? []);
        for (const [name, alike] of Map.groupBy(versions, (version) => version.name ?? 'unknown')) {
          set(alike.length, engineId, name, String(alike[0]?.isTried ?? false));
        }
      }
    },
  );
  metrics.gauge(
    {
      name: 'headgate_fleet_leader',
      help: '1 on the gateway that starts and stops engines, by scope: process engines of its machine, or containers shared by all gateways',
      labelNames: ['scope'],
    },
    (set) => fleet.leads().forEach(({ scope, leads }) => set(Number(leads), scope)),
  );
  metrics.gauge(
    { name: 'headgate_engine_running_requests', help: 'Requests of this gateway that run on an engine', labelNames },
    (set) => fleet.list().forEach(({ engineId, leases }) => set(leases, engineId)),
  );
  metrics.gauge(
    {
      name: 'headgate_engine_queue_requests',
      help: 'Requests of this gateway that wait for an engine to start',
      labelNames,
    },
    (set) => fleet.list().forEach(({ engineId, waiting }) => set(waiting, engineId)),
  );
}
