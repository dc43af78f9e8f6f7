import { z } from 'zod';
import type { EngineKind } from '#core/catalog/catalog.ts';
import type { Replica } from '#core/fleet/drivers/drivers.ts';
import { askEngine } from './engine-http.ts';

/** An engine's own report of its version and kind. */
export interface EngineIdentity {
  /** Version as reported by GET /version, such as `0.32.0`; null for an engine without this route of vLLM. */
  readonly version: string | null;
  /** True if GET /metrics has metrics of vLLM. A vLLM with `--disable-log-stats` has none. */
  readonly hasVllmMetrics: boolean;
}

const answerTimeoutMs = 2000;

const versionAnswer = z.object({ version: z.string().regex(/^[\w.+!-]{1,64}$/) });

/**
 * Asks an engine for its version and its metrics.
 * @returns null if the engine did not answer, or only an error of a server in front of it
 */
export async function identifyEngine(replica: Replica): Promise<EngineIdentity | null> {
  const [version, metrics] = await Promise.all(
    ['/version', '/metrics'].map((path) =>
      askEngine(replica, { method: 'GET', path, timeoutMs: answerTimeoutMs }).then((answer) =>
        typeof answer === 'string' || answer.status >= 500 ? null : { ...answer, text: textOf(answer) },
      ),
    ),
  );
  if (version === undefined || version === null || metrics === undefined || metrics === null) return null;
  return { version: versionIn(version.text), hasVllmMetrics: /^vllm:/m.test(metrics.text) };
}

const textOf = ({ status, text }: { readonly status: number; readonly text: string }): string =>
  status === 200 ? text : '';

function versionIn(text: string): string | null {
  try {
    return versionAnswer.safeParse(JSON.parse(text)).data?.version ?? null;
  } catch {
    return null;
  }
}

/** Returns the kind of an engine: vLLM has both the route and the metrics, and other servers may have one of them. */
export function kindOf({ version, hasVllmMetrics }: EngineIdentity): EngineKind {
  return version !== null && hasVllmMetrics ? 'vllm' : 'openai';
}
