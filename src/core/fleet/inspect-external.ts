import type { EngineDefinition } from '#core/catalog/catalog.ts';
import { createExternalDriver, type Environment } from '#core/fleet/drivers/drivers.ts';
import { type EngineIdentity, identifyEngine, kindOf } from '#core/fleet/serving/serving.ts';
import { differencesOf } from './engine-warnings.ts';

/** Findings about the servers of an external engine. */
export interface ExternalFinding {
  /** Versions of vLLM, each once; empty for other servers. */
  readonly versions: readonly string[];
  readonly warnings: readonly string[];
  /** True if at least one address answered. */
  readonly answers: boolean;
}

/**
 * Asks the servers of an external engine what they are, without a gateway.
 * @throws if the variable with the engine's key has no valid key
 */
export async function inspectExternal(definition: EngineDefinition, env: Environment): Promise<ExternalFinding> {
  const driver = createExternalDriver(env);
  await driver.open([driver.specOf(definition)]);
  const { replicas } = await driver.observe();
  const asked = await Promise.all(replicas.map(({ replica }) => identifyEngine(replica)));
  const found = asked.filter((identity): identity is EngineIdentity => identity !== null);
  const vllm = found.filter((one) => definition.kind === 'vllm' || kindOf(one) === 'vllm');
  return {
    versions: [...new Set(vllm.flatMap(({ version }) => version ?? []))],
    warnings: differencesOf(definition, found),
    answers: found.length > 0,
  };
}
