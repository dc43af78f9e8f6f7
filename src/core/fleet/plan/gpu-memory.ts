import { failureCause, type GpuUse } from '#core/fleet/drivers/drivers.ts';
import { type Draft, due, job, noteEvent } from './draft.ts';
import { failRequest } from './failure.ts';
import { gpuKey } from './placement.ts';
import type { Claim, EngineState } from './state.ts';

/** Memory use up to this counts as free: drivers and displays keep some. */
const freeBytesMax = 1_073_741_824;
const freeShareMax = 0.05;
const probePauseMs = 500;

/** Records the devices that a replica of ours uses or used: memory in use there later may be left over from it. */
export function noteTouched({ engines, gpus }: Draft): void {
  const placements = engines.flatMap(({ replicas }) => replicas.map(({ placement }) => placement));
  for (const key of placements.flatMap(({ host, gpuIds }) => gpuIds.map((id) => gpuKey(host, id)))) {
    const known = gpus.get(key);
    if (known?.touched !== true) gpus.set(key, { baselineBytes: known?.baselineBytes ?? null, touched: true });
  }
}

/**
 * True if the memory of the claimed devices is free. Asks the driver repeatedly, for a bounded time; memory still in
 * use then fails the start, and the failure names its processes.
 */
export function judgeMemory(draft: Draft, engine: EngineState, claim: Claim): boolean {
  const { nowMs } = draft.facts;
  const { placement, tries } = claim;
  const id = `${engine.id}:${claim.sinceMs}:${tries}`;
  const report = job(draft, 'probe_gpus', id);
  if (report === undefined) {
    if (nowMs >= claim.probeAtMs) {
      draft.actions.push({ type: 'probe_gpus', engineId: engine.id, placement, key: id });
    } else due(draft, claim.probeAtMs);
    return false;
  }
  if (report.state !== 'done') return false;
  const foreignUses = (report.uses ?? []).filter((use) => !isFree(draft, placement.host, use));
  if (foreignUses.length === 0 && report.cause === null) return true;
  const untilMs = (claim.freeSinceMs ?? nowMs) + draft.policy.gpuFreeTimeoutMs;
  if (nowMs < untilMs) {
    engine.claim = { ...claim, probeAtMs: nowMs + probePauseMs, tries: tries + 1 };
    due(draft, nowMs + probePauseMs);
    return false;
  }
  const cause = report.cause ?? failureCause('gpu_in_use', foreignUses.map(describe).join('; '));
  noteEvent(draft, engine, 'an engine cannot start: the memory of its GPUs stays in use', { cause });
  failRequest(draft, engine, cause);
  return false;
}

function isFree({ gpus }: Draft, host: string, { gpuId, usedBytes, totalBytes }: GpuUse): boolean {
  const key = gpuKey(host, gpuId);
  const known = gpus.get(key);
  // Before any replica of ours ran on the device, all memory in use belongs to others.
  const baselineBytes = known?.baselineBytes ?? (known?.touched === true ? null : usedBytes);
  gpus.set(key, { baselineBytes, touched: known?.touched ?? false });
  return usedBytes <= Math.max(freeBytesMax, freeShareMax * totalBytes, baselineBytes ?? 0);
}

function describe({ gpuId, usedBytes, totalBytes, processes }: GpuUse): string {
  const gib = (bytes: number): string => (bytes / 1_073_741_824).toFixed(1);
  const by = processes.length === 0 ? '' : ` by ${processes.join(', ')}`;
  return `GPU ${gpuId}: ${gib(usedBytes)} of ${gib(totalBytes)} GiB in use${by}`;
}
