import type { Log } from '#base/log.ts';
import {
  type DriverType,
  type EngineDriver,
  explainExit,
  type HostReport,
  lastLogLines,
  type ObservedReplica,
  type Orphan,
} from '#core/fleet/drivers/drivers.ts';

/** The findings of all drivers of a scope. */
export interface FleetObservation {
  /** Observed replicas by replica id. */
  readonly observed: ReadonlyMap<string, ObservedReplica>;
  /** Types of drivers that could not be observed: their replicas are assumed unchanged. */
  readonly blind: ReadonlySet<DriverType>;
  readonly hosts: ReadonlyMap<DriverType, readonly HostReport[]>;
  readonly orphans: readonly Orphan[];
}

export async function observeAll(
  drivers: ReadonlyMap<DriverType, EngineDriver>,
  { before, epoch, log }: { readonly before: FleetObservation; readonly epoch: bigint | null; readonly log: Log },
): Promise<FleetObservation> {
  const observed = new Map<string, ObservedReplica>();
  const blind = new Set<DriverType>();
  const hosts = new Map(before.hosts);
  const orphans: Orphan[] = [];
  const observe = async (type: DriverType, driver: EngineDriver): Promise<void> => {
    try {
      const found = await driver.observe(epoch);
      for (const one of found.replicas) observed.set(one.replica.id, one);
      hosts.set(type, found.hosts);
      orphans.push(...found.orphans);
    } catch (error) {
      // A driver that fails changes nothing: its last findings stay, and it is observed again.
      log.error(
        { err: error, driver: type },
        'the running engines of a driver could not be listed; the last known list stays in use. Retrying',
      );
      blind.add(type);
    }
  };
  await Promise.all([...drivers].map(([type, driver]) => observe(type, driver)));
  if (blind.size === drivers.size) return { ...before, blind };
  return {
    observed: blind.size === 0 ? observed : new Map([...before.observed, ...observed]),
    blind,
    hosts,
    orphans,
  };
}

/** The ends of replicas, kept for operators after the driver has cleaned up. */
export interface Exits {
  note(observation: FleetObservation, log: Log): void;
  /** Returns the last lines of the named replica, or of the engine's last replica that ended unexpectedly. */
  tail(engineId: string, replicaId: string | null, lines: number): readonly string[];
}

export function newExits(): Exits {
  const byEngine = new Map<string, { replicaId: string; logTail: string }>();
  return {
    note({ observed }, log) {
      for (const { replica, exit } of observed.values()) {
        if (exit === null || exit.stopRequested || byEngine.get(replica.engineId)?.replicaId === replica.id) continue;
        const { exitCode, signal, startErrorCode, oomKilled, logTail } = exit;
        byEngine.set(replica.engineId, { replicaId: replica.id, logTail });
        const { kind: cause, detail } = explainExit(exit);
        const about = { engine: replica.engineId, replica: replica.id, cause, detail };
        if (startErrorCode === null)
          log.warn({ ...about, exitCode, signal, oomKilled }, 'a replica exited unexpectedly');
        else log.warn({ ...about, startErrorCode }, 'a replica could not be started');
      }
    },
    tail(engineId, replicaId, lines) {
      const last = byEngine.get(engineId);
      if (last === undefined || last.logTail === '' || (replicaId !== null && last.replicaId !== replicaId)) return [];
      return lastLogLines(last.logTail, lines);
    },
  };
}
