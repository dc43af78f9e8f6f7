import { afterAll, beforeAll, expect, it } from 'vitest';
import { systemClock } from '#base/clock.ts';
import type { Canary } from '#core/catalog/catalog.ts';
import { checkAwake, checkReplica } from '#core/fleet/leader/checks.ts';
import type { EngineRequest } from '#core/fleet/runs/runs.ts';
import { readMetric } from '#test/inference/inference-gateway.ts';
import { startStandIn, type StandIn } from '#test/standin/engine.ts';
import { engineDefinition } from '#test/fleet/test-fleet.ts';

let engine: StandIn;
beforeAll(async () => {
  engine = await startStandIn(['--served-model-name', 'fixture', '--enable-force-include-usage', '--dev-mode']);
});
afterAll(() => engine.stop());

const messages = [{ role: 'user', content: 'Say something.' }];
const canaries: readonly Canary[] = [
  { route: 'chat/completions', body: { messages, max_tokens: 5, n: 3 }, contains: null },
  { route: 'chat/completions', body: { messages, max_tokens: 6, stream: true }, contains: null },
  { route: 'completions', body: { prompt: ['One', 'Two words'], max_tokens: 4 }, contains: null },
];

function checked(noted: EngineRequest[]) {
  const endpoint = { socketPath: engine.socketPath, host: 'localhost', port: 0, tls: false, basePath: '' };
  const upstream = { upstreamModel: null, headerLines: '', forcedUsage: true, kind: 'vllm' } as const;
  const definition = engineDefinition();
  // From a container's settings the checks read only the canaries.
  const driver = { ...definition.driver, type: 'docker', canaries } as unknown as typeof definition.driver;
  return {
    replica: { id: 'r1', engineId: 'fixture', endpoint, ...upstream },
    definition: { ...definition, driver },
    timeoutMs: 10_000,
    clock: systemClock,
    engineRequests: { note: (request: EngineRequest) => void noted.push(request), flush: () => Promise.resolve() },
  };
}

it('the replica checks record the usage check and every canary with the tokens that the engine counted', async () => {
  const noted: EngineRequest[] = [];
  expect(await checkReplica(checked(noted))).toEqual({ cause: null, abortFault: null });
  expect(noted.map(({ kind }) => kind)).toEqual(['probe', 'canary', 'canary', 'canary', 'canary']);
  expect(noted.every(({ uncounted, replicaId }) => !uncounted && replicaId === 'r1')).toBe(true);
  expect(await checkAwake(checked(noted))).toBeNull();
  const sum = (read: (one: EngineRequest) => number): number => noted.reduce((total, one) => total + read(one), 0);
  const { socketPath } = engine;
  expect(sum(({ promptTokens }) => promptTokens)).toBe(await readMetric(socketPath, 'vllm:prompt_tokens_total'));
  expect(sum(({ completionTokens }) => completionTokens)).toBe(
    await readMetric(socketPath, 'vllm:generation_tokens_total'),
  );
});
