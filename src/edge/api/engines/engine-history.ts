import { createRoute, z } from '@hono/zod-openapi';
import type { EngineSamples } from '#core/fleet/fleet.ts';
import { type ApiApp, bearerSecurity, jsonAnswer, toUnixSeconds } from '#edge/api/shared/shared.ts';
import { type EngineAnswer, type EngineHistoryAnswer, engineHistorySchema } from '#edge/contract/engines.ts';
import { type EngineRoutesParts, findEngine, idParams } from './engine-routes.ts';

type Load = EngineHistoryAnswer['load'][number];
type GpuSample = EngineHistoryAnswer['gpus'][number]['samples'][number];

const rounded = (value: number | null, digits: number): number | null =>
  value === null ? null : Number(value.toFixed(digits));

function toLoad(point: EngineSamples['load'][number]): Load {
  const { atMs, running, waiting, kvCacheUse, promptTokensPerSecond, generationTokensPerSecond } = point;
  return {
    at: toUnixSeconds(atMs),
    running,
    waiting,
    kv_cache_use: rounded(kvCacheUse, 4),
    prompt_tokens_per_second: rounded(promptTokensPerSecond, 1),
    generation_tokens_per_second: rounded(generationTokensPerSecond, 1),
  };
}

function toGpuSample({
  atMs,
  usedBytes,
  totalBytes,
  busy,
}: EngineSamples['gpus'][number]['points'][number]): GpuSample {
  return { at: toUnixSeconds(atMs), memory_used_bytes: usedBytes, memory_bytes: totalBytes, busy };
}

/** Returns the last readings of an engine that runs; those of an earlier replica are no news. */
export function toNow(
  { load, gpus }: EngineSamples,
  replicas: EngineAnswer['replicas'],
): Pick<EngineAnswer, 'load' | 'gpu_use'> {
  const last = replicas.some(({ state }) => state === 'ready' || state === 'draining') ? load.at(-1) : undefined;
  const held = new Set(replicas.flatMap(({ host, gpus: ids }) => ids.map((id) => `${host}\n${id}`)));
  return {
    load: last === undefined ? null : toLoad(last),
    gpu_use: gpus.flatMap(({ host, gpuId, points }) => {
      const point = points.at(-1);
      return point === undefined || !held.has(`${host}\n${gpuId}`) ? [] : [{ id: gpuId, host, ...toGpuSample(point) }];
    }),
  };
}

export function registerHistory(app: ApiApp, { guards, operations }: EngineRoutesParts): void {
  const route = createRoute({
    method: 'get',
    path: '/v1/admin/engines/{id}/history',
    security: bearerSecurity,
    middleware: [guards.may('engines')],
    request: { params: idParams, query: z.strictObject({}) },
    responses: { 200: jsonAnswer(engineHistorySchema, 'Samples of the last hour') },
  });
  app.openapi(route, (context) => {
    const { id } = context.req.valid('param');
    findEngine(operations, id);
    const { load, gpus } = operations.samples(id);
    const answer = {
      object: 'engine_history' as const,
      id,
      load: load.map(toLoad),
      gpus: gpus.map(({ host, gpuId, points }) => ({ id: gpuId, host, samples: points.map(toGpuSample) })),
    };
    return context.json(answer, 200);
  });
}
