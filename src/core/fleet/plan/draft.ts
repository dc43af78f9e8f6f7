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
import { type EngineSettings, type FleetPolicy, settingsOf } from '#core/fleet/policy.ts';
import type { LoadReport } from '#core/fleet/serving/serving.ts';
import type { Demand, PendingCommand } from '#core/fleet/store/store.ts';
import type { Occupant } from './placement.ts';
import type { End, EngineState, GpuMemory, LeaderState, ReplicaState } from './state.ts';

/** What is known now, and what follows from it. Nothing here does anything; times are monotonic milliseconds. */
export interface LeaderFacts {
  readonly nowMs: number;
  /** Of the files, enabled ones, by engine id. */
  readonly specs: ReadonlyMap<string, EngineSpec>;
  /** By replica id. */
  readonly observed: ReadonlyMap<string, ObservedReplica>;
  /** Types of drivers that could not be asked at all: nothing is decided about their engines. */
  readonly blind: ReadonlySet<DriverType>;
  readonly hosts: ReadonlyMap<DriverType, readonly HostReport[]>;
  /** What has devices or memory of these hosts and is no replica of these engines. */
  readonly holdings: readonly Holding[];
  readonly demands: readonly Demand[];
  readonly commands: readonly PendingCommand[];
  /** By key: see `jobKey`. Read before the replicas were observed. */
  readonly jobs: ReadonlyMap<string, JobReport>;
  /** By replica id, as this gateway's own probes found it; absent before the first one. */
  readonly health: ReadonlyMap<string, boolean>;
  /** By replica id. */
  readonly loads: ReadonlyMap<string, LoadReport>;
  readonly newReplicaId: (engineId: string) => string;
  /** What cannot outlive this gateway is to end. */
  readonly closing: boolean;
}

/** Something that takes time and is done beside the reconciliations. */
export type JobReport =
  | { readonly state: 'pending' }
  /** Nothing was changed: this gateway could not make sure that it still leads. */
  | { readonly state: 'called_off' }
  | { readonly state: 'done'; readonly cause: FailureCause | null; readonly uses: readonly GpuUse[] | null };

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

/** `check`: usage probe and canaries; `sleep` and `wake` as the engine's file says. */
export type ReplicaJob = 'stop' | 'forget' | 'check' | 'sleep' | 'wake';

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
  /** When time alone will change something; Infinity when it will not. */
  readonly dueAtMs: number;
}

export function jobKey(type: LeaderAction['type'], id: string): string {
  return `${type}:${id}`;
}

/** A plan in the making. */
export interface Draft {
  readonly facts: LeaderFacts;
  readonly policy: FleetPolicy;
  engines: EngineState[];
  readonly gpus: Map<string, GpuMemory>;
  ends: readonly End[];
  /** Places that who has waited longest cannot have yet, and nobody else gets meanwhile. */
  readonly reserved: Occupant[];
  /** Replicas that are to give way for those, by id. */
  readonly spokenFor: Set<string>;
  readonly actions: LeaderAction[];
  readonly events: LeaderEvent[];
  dueAtMs: number;
}

/** What is replaced as a whole may be shared with the state before; what is changed in place is copied. */
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

export function settings(engine: EngineState): EngineSettings {
  return settingsOf(engine.spec.definition);
}

export function driverType(engine: EngineState): DriverType {
  return engine.spec.definition.driver.type;
}

/** This gateway is about to end; containers run on then, or sleep on. */
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

/** What all live gateways together need of one engine. */
export interface Need {
  readonly waiting: number;
  readonly leases: number;
  /** Since it was last used; 0 while it is. */
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

/** Leases on one replica, of all live gateways. */
export function leasesOn({ facts }: Draft, { id }: EngineState, replica: ReplicaState): number {
  return facts.demands.reduce((sum, { engines }) => sum + (engines[id]?.leases[replica.id] ?? 0), 0);
}

export function hostIsAway({ facts }: Draft, engine: EngineState, replica: ReplicaState): boolean {
  const host = facts.hosts.get(driverType(engine))?.find(({ name }) => name === replica.placement.host);
  return host !== undefined && !host.reachable;
}
