import type { Log } from '#base/log.ts';
import type { EngineDefinition, EngineReload, EngineReloadResult } from '#core/catalog/catalog.ts';
import { type Fleet, type LogSource, readLogs } from '#core/fleet/fleet.ts';
import type { EngineOperations } from '#edge/api/api.ts';

export interface EngineOperationsParts {
  readonly fleet: Pick<Fleet, 'list' | 'logs' | 'hosts' | 'orphans'>;
  readonly reload: EngineReload;
  /** Tells the other gateways of this database to read their files, too. */
  readonly tellReload: () => Promise<void>;
  readonly log: Log;
}

/** What operators see of engines, for the API, and the reload of all gateways. */
export function createEngineOperations({
  fleet,
  reload,
  tellReload,
  log,
}: EngineOperationsParts): EngineOperations & { reload(): Promise<EngineReloadResult> } {
  const source: LogSource = { fleet, log };
  return {
    definitions: (): readonly EngineDefinition[] => reload.engines(),
    list: () => fleet.list(),
    logs: (engineId, replicaId, request) => readLogs(source, { engineId, replicaId }, request),
    hosts: () => fleet.hosts(),
    orphans: () => fleet.orphans(),
    async reload() {
      const result = await reload.reload();
      if (result.ok) await tellReload();
      return result;
    },
  };
}
