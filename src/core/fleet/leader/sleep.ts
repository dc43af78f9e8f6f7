import { type FailureCause, failureCause, type Replica } from '#core/fleet/drivers/drivers.ts';
import { askEngine, noAnswerText } from '#core/fleet/serving/serving.ts';

/** vLLM's sleep mode: an idle engine frees its GPU memory and keeps its process. */

/** A level 1 sleep takes as long as copying the weights to memory. */
const sleepTimeoutMs = 120_000;
const wakeTimeoutMs = 600_000;

/** Calls vLLM's development routes, which answer when the change is complete. */
export async function putToSleep(replica: Replica, level: 1 | 2): Promise<FailureCause | null> {
  return control(replica, [`/sleep?level=${level}`], sleepTimeoutMs);
}

/**
 * Wakes an engine. After level 2 the weights are reloaded between the two halves of the wake-up, as vLLM documents it.
 */
export async function wakeUp(replica: Replica, level: 1 | 2): Promise<FailureCause | null> {
  if (level === 1) return control(replica, ['/wake_up'], wakeTimeoutMs);
  return control(
    replica,
    ['/wake_up?tags=weights', '/collective_rpc', '/wake_up?tags=kv_cache', '/reset_prefix_cache'],
    wakeTimeoutMs,
  );
}

async function control(replica: Replica, paths: readonly string[], timeoutMs: number): Promise<FailureCause | null> {
  for (const path of paths) {
    const body = path === '/collective_rpc' ? { body: { method: 'reload_weights' } } : {};
    const answer = await askEngine(replica, { method: 'POST', path, timeoutMs, ...body });
    const status = typeof answer === 'string' ? noAnswerText[answer] : `status ${answer.status}`;
    if (typeof answer === 'string' || answer.status !== 200) return failureCause('probe_failed', `${path}: ${status}`);
  }
  return null;
}
