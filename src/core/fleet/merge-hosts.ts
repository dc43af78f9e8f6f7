import type { HostReport } from '#core/fleet/drivers/drivers.ts';

/** Returns one report per host: both the processes and the containers of a machine report it. */
export function mergeHosts(reports: readonly HostReport[]): HostReport[] {
  return [...Map.groupBy(reports, ({ name }) => name).values()].map((same) => same.reduce(merge));
}

function merge(one: HostReport, other: HostReport): HostReport {
  const troubles = [one.trouble, other.trouble].filter((text) => text !== undefined);
  const memoryBytes = one.memoryBytes ?? other.memoryBytes;
  const known = new Map(one.gpus.map((gpu) => [gpu.id, gpu]));
  for (const gpu of other.gpus) if ((known.get(gpu.id)?.memoryBytes ?? null) === null) known.set(gpu.id, gpu);
  return {
    name: one.name,
    pools: [...new Set([...one.pools, ...other.pools])],
    reachable: one.reachable && other.reachable,
    ...(troubles.length > 0 && { trouble: troubles.join('; ') }),
    gpus: [...known.values()],
    ...(memoryBytes !== undefined && { memoryBytes }),
  };
}
