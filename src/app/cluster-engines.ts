import { createHmac } from 'node:crypto';
import { isDeepStrictEqual } from 'node:util';
import type { Db } from '#base/database/database.ts';
import { formatId } from '#base/id.ts';
import type { Log } from '#base/log.ts';
import { clusterEngineText, type EngineText } from '#core/catalog/catalog.ts';
import { readNodeAddresses } from '#core/clusters/clusters.ts';
import { listEngines } from '#core/runs/runs.ts';

/** Engines that runs have started on clusters: the gateway serves them like engine files with `driver: external`. */
export interface ClusterEngines {
  /** Reads the engines from the database. @returns true if they are others than before */
  refresh(): Promise<boolean>;
  /** Texts of the engines, as last read. */
  texts(): readonly EngineText[];
}

export interface ClusterEnginesParts {
  readonly db: Db;
  readonly log: Log;
  /** Secret that all gateways share, from which the keys of engines are derived. */
  readonly secret: string;
  /** Variables for engine files; gets the keys of the engines. */
  readonly environment: Record<string, string | undefined>;
}

/** Returns the key of all engines of a cluster. Runs get it, and the gateway sends it. */
export function clusterEngineKey(secret: string, clusterId: string): string {
  return createHmac('sha256', secret).update(clusterId).digest('base64url');
}

export function createClusterEngines({ db, log, secret, environment }: ClusterEnginesParts): ClusterEngines {
  let texts: readonly EngineText[] = [];

  async function read(): Promise<readonly EngineText[]> {
    const declared = await listEngines(db.sql);
    const clusterIds = [...new Set(declared.map(({ clusterId }) => clusterId))];
    const nodes = clusterIds.length === 0 ? [] : await readNodeAddresses(db, clusterIds);
    // Runs on archived clusters stay APPLIED. These clusters have no nodes here.
    const here = declared.filter(({ clusterId }) => nodes.some((one) => one.clusterId === clusterId));
    return here.map(({ runId, clusterId, stackName, node, engine }) =>
      clusterEngineText({
        file: `${formatId('run', runId)} (stack ${stackName})`,
        engine,
        nodes: nodes.filter((one) => one.clusterId === clusterId),
        node,
        apiKeyEnv: `HEADGATE_CLUSTER_${clusterId.replaceAll('-', '_')}`,
        apiKey: clusterEngineKey(secret, clusterId),
      }),
    );
  }

  return {
    async refresh() {
      const found = await read();
      if (isDeepStrictEqual(found, texts)) return false;
      texts = found;
      for (const { env } of found) Object.assign(environment, env);
      log.info({ engines: found.map(({ file }) => file) }, 'the engines that runs have started on clusters changed');
      return true;
    },
    texts: () => texts,
  };
}
