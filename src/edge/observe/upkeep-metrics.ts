import type { Metrics } from '#base/metrics/metrics.ts';

/** Gauges of things that fill up or get lost unnoticed. */

interface Filling {
  readonly used: number;
  readonly size: number;
}

export interface WatchedUpkeep {
  figures(): {
    readonly dataDisk: Filling | null;
    readonly databaseBytes: number | null;
    readonly redis: Filling | null;
    readonly keyTrouble: string | null;
    readonly unexplained: number | null;
  };
}

export function addUpkeepGauges(metrics: Metrics, upkeep: WatchedUpkeep): void {
  const add = (name: string, help: string, read: () => number | null): void =>
    metrics.gauge({ name, help }, (set) => {
      const value = read();
      if (value !== null) set(value);
    });
  const figures = (): ReturnType<WatchedUpkeep['figures']> => upkeep.figures();
  add('headgate_data_disk_bytes', 'Size of the disk of the data folder', () => figures().dataDisk?.size ?? null);
  add('headgate_data_disk_used_bytes', 'What of it is used, or kept for root', () => figures().dataDisk?.used ?? null);
  add('headgate_database_bytes', 'Size of the database in PostgreSQL', () => figures().databaseBytes);
  add('headgate_redis_memory_max_bytes', 'maxmemory of Redis, 0 without one', () => figures().redis?.size ?? 0);
  add('headgate_redis_memory_bytes', 'What Redis uses of its maxmemory', () => figures().redis?.used ?? 0);
  add('headgate_platform_key_up', '1 while this gateway can encrypt with the platform key in use', () =>
    figures().keyTrouble === null ? 1 : 0,
  );
  add(
    'headgate_reconcile_unexplained_hours',
    'Models of the last reconciled hour whose books and engine counters differ unexplained; of gateways without that job 0',
    () => figures().unexplained ?? 0,
  );
}
