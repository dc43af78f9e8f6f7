import type { Log } from '#base/log.ts';
import type { EngineDefinition, EngineReloadResult } from '#core/catalog/catalog.ts';
import { type LogSource, readLogs } from '#core/fleet/fleet.ts';
import type { Agreement } from '#core/gateways/gateways.ts';
import type { EngineOperations } from '#edge/api/api.ts';
import type { ClusterEngines } from './cluster-engines.ts';
import type { Coordination } from './coordination.ts';
import type { Gateway } from './gateway.ts';
import type { Part } from './lifecycle.ts';

export interface EngineOperationsParts {
  readonly gateway: Pick<Gateway, 'catalog' | 'fleet' | 'engineFiles'>;
  readonly coordination: Pick<Coordination, 'gateways' | 'onMessage'>;
  readonly agreement: Pick<Agreement, 'compare' | 'differences'>;
  readonly log: Log;
}

/** Creates the engine operations of the API, and the reload on all gateways. */
export function createEngineOperations({
  gateway,
  coordination,
  agreement,
  log,
}: EngineOperationsParts): EngineOperations & { reload(): Promise<EngineReloadResult> } {
  const { fleet, engineFiles } = gateway;
  const source: LogSource = { fleet, log };
  return {
    definitions: (): readonly EngineDefinition[] => engineFiles.engines(),
    files: () => engineFiles.state(),
    folder: engineFiles.folder,
    differences: () => agreement.differences(),
    pendingPrices: () => gateway.catalog.pending(),
    list: () => fleet.list(),
    samples: (engineId) => fleet.samples(engineId),
    logs: (engineId, replicaId, request) => readLogs(source, { engineId, replicaId }, request),
    hosts: () => fleet.hosts(),
    orphans: () => fleet.orphans(),
    async reload() {
      const result = await engineFiles.reload();
      if (result.ok) await tellReload(coordination, log);
      // The other gateways have read their files by now, and prices that all gateways have are written.
      if (result.ok) await Promise.all([gateway.catalog.refresh(), agreement.compare()]);
      return result;
    },
  };
}

async function tellReload({ gateways }: EngineOperationsParts['coordination'], log: Log): Promise<void> {
  try {
    await gateways.broadcast({ kind: 'engine files' });
  } catch (error) {
    log.warn(
      { err: error },
      'other gateways were not asked to reload their engine files; run "headgate engines reload" again',
    );
  }
}

/** Milliseconds between two looks for engines that runs have started or are about to stop. */
const clusterEnginesMs = 2000;

/** Reads the engine files again when another gateway asks for it, and applies engines that runs have started or stop. */
export function createReloadPart({
  gateway,
  coordination,
  log,
  clusterEngines,
}: EngineOperationsParts & { readonly clusterEngines: Pick<ClusterEngines, 'refresh'> }): Part {
  let isStarted = false;
  const reload = (): Promise<void> => reloadQuietly(() => gateway.engineFiles.reload(), log);
  let isDue = false;
  async function applyIfChanged(): Promise<void> {
    if (!isStarted) return;
    isDue = (await clusterEngines.refresh()) || isDue;
    if (!isDue) return;
    await gateway.engineFiles.applyRunEngines();
    isDue = false;
  }
  return {
    name: 'reload of engine files',
    jobs: [{ name: 'find engines of runs', everyMs: clusterEnginesMs, where: 'every', run: applyIfChanged }],
    start() {
      coordination.onMessage('engine files', reload);
      isStarted = true;
    },
  };
}

/** Reloads and never rejects. Mistakes in files are logged by the reader of the files; other errors are logged here. */
export async function reloadQuietly(reload: () => Promise<unknown>, log: Log): Promise<void> {
  try {
    await reload();
  } catch (error) {
    log.error(
      { err: error },
      'the engine files could not be reloaded; the previous configuration stays in effect. Reload again when the cause is fixed',
    );
  }
}
