import type { EngineDefinition } from '#core/catalog/catalog.ts';
import { kindOf, type Engine, type EngineIdentity } from '#core/fleet/serving/serving.ts';

const mixed = 'Some of its addresses are vLLM and others are not. List only servers of one kind in a file.';
const unmarked =
  'It is vLLM, but its file does not say kind: vllm. Organizations share its prompt cache, and interrupted requests are billed less exactly. Set kind: vllm.';
const mismarked =
  'Its file says kind: vllm, but it has neither GET /version nor metrics of vLLM. If it is another server, set kind: openai.';

const unreliable =
  'Aborts by id failed their check, so requests that end early are billed by what the gateway saw of them.';

/** Returns what an operator should know about an engine that serves: where its file and what it shows differ. */
export function warningsOf(engine: Engine): readonly string[] {
  const found = engine.replicas.all().flatMap(({ identity }) => identity ?? []);
  const faults = new Set(engine.replicas.all().flatMap(({ replica }) => replica.abortFault ?? []));
  return [...differencesOf(engine.spec.definition, found), ...[...faults].map((fault) => `${unreliable} ${fault}`)];
}

/** Returns where the file of an engine and what its replicas show differ, in sentences. */
export function differencesOf({ driver, kind }: EngineDefinition, found: readonly EngineIdentity[]): readonly string[] {
  const kinds = new Set(found.map(kindOf));
  if (driver.type === 'external' && driver.findsKind) return kinds.size > 1 ? [mixed] : [];
  if (kind === 'openai') return kinds.has('vllm') ? [unmarked] : [];
  return found.some(isOther) ? [mismarked] : [];
}

const isOther = ({ version, hasVllmMetrics }: EngineIdentity): boolean => version === null && !hasVllmMetrics;
