import type { ContainerDriverSettings, EngineDefinition, ProcessDriverSettings } from '#core/catalog/catalog.ts';
import type { HostReport } from '#core/fleet/drivers/driver.ts';
import { engineDefinition } from './test-fleet.ts';

export function containerDefinition(
  id: string,
  driver: Partial<ContainerDriverSettings> = {},
  over: Partial<EngineDefinition> = {},
): EngineDefinition {
  return engineDefinition(
    {},
    {
      id,
      file: `engines/${id}.yaml`,
      kind: 'vllm',
      driver: {
        type: 'docker',
        image: 'acme/engine:1',
        args: [],
        entrypoint: null,
        env: {},
        gpus: { count: 1, memoryBytesMin: null, profile: null },
        shmBytes: null,
        memoryBytesMax: null,
        ulimits: {},
        cpuset: {},
        volumes: [],
        port: 8000,
        hosts: [],
        placement: 'pack',
        constraints: [],
        idleMs: 60_000,
        startTimeoutMs: 20_000,
        drainMs: 5000,
        upMinMs: 10_000,
        replicas: { min: 0, max: 1 },
        schedule: [],
        pinned: false,
        sleepLevel: 0,
        canaries: [],
        ...driver,
      },
      ...over,
    },
  );
}

export function gpuHost(name: string, gpus: number, memoryBytes: number | null = null): HostReport {
  const ids = Array.from({ length: gpus }, (_, index) => ({ id: `${name}-gpu${index}`, memoryBytes, profile: null }));
  return { name, pools: [], reachable: true, gpus: ids };
}

export function processDefinition(id: string, driver: Partial<ProcessDriverSettings> = {}): EngineDefinition {
  const times = { idleMs: 60_000, startTimeoutMs: 20_000, drainMs: 5000 };
  return engineDefinition({ ...times, ...driver }, { id, file: `engines/${id}.yaml` });
}

/** The machine that processes run on. */
export function machine(over: Partial<HostReport> = {}): HostReport {
  return { name: 'local', pools: [], reachable: true, gpus: [], memoryBytes: 16 * gib, ...over };
}

export const gib = 2 ** 30;
