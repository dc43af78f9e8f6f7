import type { Log } from '#base/log.ts';
import type { EngineDefinition, EngineReload } from '#core/catalog/catalog.ts';
import { type Fleet, type LogSource, readLogs } from '#core/fleet/fleet.ts';
import type { EngineOperations } from '#edge/api/api.ts';

export interface OperatingParts {
  readonly fleet: Pick<Fleet, 'list' | 'order' | 'logs' | 'hosts' | 'strangers'>;
  readonly reload: EngineReload;
  /** Tells the other gateways of this database to read their files, too. */
  readonly tellReload: () => Promise<void>;
  readonly log: Log;
}

/** What operators may do, for the API. */
export function createOperating({ fleet, reload, tellReload, log }: OperatingParts): EngineOperations {
  const source: LogSource = { fleet, log };
  return {
    definitions: (): readonly EngineDefinition[] => reload.engines(),
    list: () => fleet.list(),
    order: (engineId, kind, tx) => fleet.order(engineId, kind, tx),
    logs: (engineId, replicaId, request) => readLogs(source, { engineId, replicaId }, request),
    hosts: () => fleet.hosts(),
    strangers: () => fleet.strangers(),
    async reload() {
      const result = await reload.reload();
      if (result.ok) await tellReload();
      return result;
    },
  };
}
