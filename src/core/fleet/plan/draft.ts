import type {
  DriverType,
  EngineSpec,
  FailureCause,
  GpuUse,
  Holding,
  HostReport,
  ObservedReplica,
  Placement,
} from '#core/fleet/drivers/drivers.ts';
import { type EngineSettings, type FleetPolicy, type ReplicaBounds, settingsOf } from '#core/fleet/policy.ts';
import type { LoadReport } from '#core/fleet/serving/serving.ts';
import type { Demand, Download, PendingCommand } from '#core/fleet/store/store.ts';
import type { Occupant } from './placement.ts';
import type { End, EngineState, GpuMemory, LeaderState, ReplicaState } from './state.ts';

/**
 * Everything the leader knows at one reconciliation. The functions of this folder only compute: they change nothing
 * outside. Times are monotonic milliseconds.
 */
export interface LeaderFacts {
  readonly nowMs: number;
  /** The same time in milliseconds since the Unix epoch, for schedules. */
  readonly epochMs: number;
  /** Enabled engines of the files, by engine id. */
  readonly specs: ReadonlyMap<string, EngineSpec>;
  /** Replicas that the drivers report, by replica id. */
  readonly observed: ReadonlyMap<string, ObservedReplica>;
  /** Types of drivers whose observation failed. The plan decides nothing about their engines. */
  readonly blind: ReadonlySet<DriverType>;
  readonly hosts: ReadonlyMap<DriverType, readonly HostReport[]>;
  /** Devices or memory of these hosts in use by something that is not a replica of these engines. */
  readonly holdings: readonly Holding[];
  readonly demands: readonly Demand[];
  readonly commands: readonly PendingCommand[];
  /** Reports by key, see `jobKey`. Read before the replicas are observed. */
  readonly jobs: ReadonlyMap<string, JobReport>;
  /** Results of this gateway's own probes, by replica id; absent before a replica's first probe. */
  readonly health: ReadonlyMap<string, boolean>;
  /** Loads that the engines report, by replica id. */
  readonly loads: ReadonlyMap<string, LoadReport>;
  /** Last progress that ready replicas reported, by replica id; absent for engines without such metrics. */
  readonly progress: ReadonlyMap<string, string>;
  /** Output and downloads of replicas that are being created or started, by replica id; absent if unknown. */
  readonly starts: ReadonlyMap<string, StartReading>;
  readonly newReplicaId: (engineId: string) => string;
  /** True while this gateway shuts down: replicas that cannot outlive the gateway must end. */
  readonly closing: boolean;
}

/** Output and download of a start, by its last readings. */
export interface StartReading {
  /** Changes with each line of output and each byte of a download. */
  readonly activity: string;
  /** The download that is in progress; null if there is none. */
  readonly download: Download | null;
}

/** The report of an action that takes time and runs beside the reconciliations. */
export type JobReport =
  | { readonly state: 'pending' }
  /** The action changed nothing: this gateway could not verify that it still leads. */
  | { readonly state: 'called_off' }
  | {
      readonly state: 'done';
      readonly cause: FailureCause | null;
      readonly uses: readonly GpuUse[] | null;
      /** Why aborts by id cannot be relied on although the check passed; null or absent if there is no such reason. */
      readonly abortFault?: string | null;
    };

export type LeaderAction =
  | {
      readonly type: 'start';
      readonly engineId: string;
      readonly replicaId: string;
      readonly spec: EngineSpec;
      readonly placement: Placement;
    }
  | { readonly type: ReplicaJob; readonly engineId: string; readonly replicaId: string }
  | { readonly type: 'probe_gpus'; readonly engineId: string; readonly placement: Placement; readonly key: string };

/**
 * Jobs on a replica. `check` runs the usage check and the canaries; `canary` sends one request to a silent replica;
 * `sleep` and `wake` follow the engine's file.
 */
export type ReplicaJob = 'stop' | 'forget' | 'check' | 'canary' | 'sleep' | 'wake';

/** One line of the log. */
export interface LeaderEvent {
  readonly engineId: string;
  readonly replicaId: string | null;
  readonly text: string;
  readonly cause: FailureCause | null;
}

export interface Plan {
  readonly state: LeaderState;
  readonly actions: readonly LeaderAction[];
  readonly events: readonly LeaderEvent[];
  /** Next time at which the plan changes without new facts; Infinity for never. */
  readonly dueAtMs: number;
}

export function jobKey(type: LeaderAction['type'], id: string): string {
  return `${type}:${id}`;
}

/** A plan under construction. */
export interface Draft {
  readonly facts: LeaderFacts;
  readonly policy: FleetPolicy;
  engines: EngineState[];
  readonly gpus: Map<string, GpuMemory>;
  ends: readonly End[];
  /** Places that the longest waiting engine cannot use yet, and that no other engine gets meanwhile. */
  readonly reserved: Occupant[];
  /** Ids of the replicas that must leave to free the reserved places. */
  readonly spokenFor: Set<string>;
  readonly actions: LeaderAction[];
  readonly events: LeaderEvent[];
  dueAtMs: number;
}

/**
 * Returns a draft of the next state. Objects that are replaced as a whole are shared with the state before; objects
 * that are changed in place are copied.
 */
export function draftOf(state: LeaderState, facts: LeaderFacts, policy: FleetPolicy): Draft {
  const engines = state.engines.map((engine) => ({
    ...engine,
    replicas: engine.replicas.map((replica) => ({ ...replica })),
  }));
  const { ends } = state;
  const fresh = { actions: [], events: [], reserved: [], spokenFor: new Set<string>(), dueAtMs: Infinity };
  return { facts, policy, engines, gpus: new Map(state.gpus), ends, ...fresh };
}

export function due(draft: Draft, atMs: number): void {
  draft.dueAtMs = Math.min(draft.dueAtMs, atMs);
}

export function settings({ spec, bounds }: EngineState): EngineSettings & Pick<ReplicaBounds, 'min' | 'max'> {
  const { min, max } = bounds;
  return { ...settingsOf(spec.definition), min, max };
}

/** True while the schedule of the file keeps the engine off. */
export function isOff({ bounds }: EngineState): boolean {
  return bounds.max === 0;
}

export function driverType(engine: EngineState): DriverType {
  return engine.spec.definition.driver.type;
}

/** True if the engine ends because this gateway ends. Only processes do; containers keep running, or stay asleep. */
export function endsWithGateway({ facts }: Draft, engine: EngineState): boolean {
  return facts.closing && driverType(engine) === 'process';
}

export function act(draft: Draft, type: ReplicaJob, engine: EngineState, replicaId: string): void {
  draft.actions.push({ type, engineId: engine.id, replicaId });
}

export function noteEvent(
  draft: Draft,
  engine: EngineState,
  text: string,
  about: { readonly replicaId?: string; readonly cause?: FailureCause } = {},
): void {
  draft.events.push({ engineId: engine.id, text, replicaId: about.replicaId ?? null, cause: about.cause ?? null });
}

export function job(draft: Draft, type: LeaderAction['type'], id: string): JobReport | undefined {
  return draft.facts.jobs.get(jobKey(type, id));
}

/** Demand for one engine, summed over all live gateways. */
export interface Need {
  readonly waiting: number;
  readonly leases: number;
  /** Time since the last use; 0 while the engine is in use. */
  readonly idleMs: number;
}

export function needOf({ facts }: Draft, { id }: EngineState): Need {
  let waiting = 0;
  let leases = 0;
  let idleMs = Infinity;
  for (const { engines } of facts.demands) {
    const own = engines[id];
    if (own === undefined) continue;
    waiting += own.waiting;
    leases += Object.values(own.leases).reduce((sum, count) => sum + count, 0);
    idleMs = Math.min(idleMs, own.idleMs ?? 0);
  }
  return { waiting, leases, idleMs: waiting + leases > 0 ? 0 : idleMs };
}

/** Returns the number of leases on one replica, summed over all live gateways. */
export function leasesOn({ facts }: Draft, { id }: EngineState, replica: ReplicaState): number {
  return facts.demands.reduce((sum, { engines }) => sum + (engines[id]?.leases[replica.id] ?? 0), 0);
}

/** Returns the tokens of the longest prompt that one replica still reads, over all live gateways. */
export function longestPromptOn({ facts }: Draft, { id }: EngineState, replica: ReplicaState): number {
  return Math.max(0, ...facts.demands.map(({ engines }) => engines[id]?.longPrompts?.[replica.id] ?? 0));
}

export function isHostUnreachable({ facts }: Draft, engine: EngineState, replica: ReplicaState): boolean {
  const host = facts.hosts.get(driverType(engine))?.find(({ name }) => name === replica.placement.host);
  return host !== undefined && !host.reachable;
}
