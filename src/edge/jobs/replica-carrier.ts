import type { Clock } from '#base/clock.ts';
import type { Log } from '#base/log.ts';
import type { EngineDefinition } from '#core/catalog/catalog.ts';
import type { Costs, OrganizationRef, ReplicaRun } from '#core/costs/costs.ts';
import type { GpuRun, GpuRunsWanted, HostReport } from '#core/fleet/fleet.ts';
import { formatId } from '#base/id.ts';

/**
 * Tells the costs what the fleet's replicas held, since the two do not know each other. Telling a run again changes
 * nothing, so that it does not matter how often, by how many gateways, and how far a pass came before it ended.
 */
export interface ReplicaCarrier {
  /** @returns how many runs were new or had changed */
  carry(): Promise<number>;
}

export interface ReplicaCarrierParts {
  readonly readRuns: (wanted: GpuRunsWanted) => Promise<readonly GpuRun[]>;
  readonly costs: Pick<Costs, 'carryReplicaRuns' | 'listOpen'>;
  /** By the model's id; undefined where its file is gone. */
  readonly findEngine: (id: string) => EngineDefinition | undefined;
  readonly hosts: () => readonly HostReport[];
  readonly organizations: {
    find(id: string): Promise<OrganizationRef | null>;
    /** The one that was made first; null before there is any. */
    first(): Promise<OrganizationRef | null>;
  };
  readonly clock: Clock;
  readonly log: Log;
}

const pageSize = 1000;
const dayMs = 86_400_000;
/** Rows of runs are written within seconds; what comes later is found by the next pass over all of them. */
const lateMs = 3_600_000;
/**
 * Counters of what runs are read every few seconds. Where they were not for so long, nobody watched: the replica was
 * there when they were read last, and is not counted for longer.
 */
const silentMs = 5 * 60_000;
/** For so long a run waits for its host to be known, which says what kind of GPU it has. */
const hostWaitMs = 15 * 60_000;
const defaultProfile = 'default';

export function createReplicaCarrier(parts: ReplicaCarrierParts): ReplicaCarrier {
  return new Carrier(parts);
}

class Carrier implements ReplicaCarrier {
  readonly #parts: ReplicaCarrierParts;
  /** When the last pass began, and the last one over all runs; null before the first, and after one that failed. */
  #passMs: number | null = null;
  #fullMs = 0;
  readonly #warned = new Set<string>();

  constructor(parts: ReplicaCarrierParts) {
    this.#parts = parts;
  }

  async carry(): Promise<number> {
    const nowMs = this.#parts.clock.now();
    const isFull = this.#passMs === null || nowMs - this.#fullMs >= dayMs;
    const endedSinceMs = isFull ? 0 : (this.#passMs ?? 0) - lateMs;
    this.#passMs = null;
    const changed = await this.#carrySince(Math.max(0, endedSinceMs), nowMs);
    this.#passMs = nowMs;
    if (isFull) this.#fullMs = nowMs;
    return changed;
  }

  async #carrySince(endedSinceMs: number, nowMs: number): Promise<number> {
    const { costs, organizations, readRuns } = this.#parts;
    const first = await organizations.first();
    if (first === null) return 0;
    const ids = await this.#openIds();
    let changed = 0;
    for (let after: string | null = null, more = true; more;) {
      const runs = await readRuns({ endedSinceMs, ids, after, limit: pageSize });
      const told: ReplicaRun[] = [];
      for (const run of runs) {
        const one = await this.#toReplicaRun(run, first, nowMs);
        if (one !== null) told.push(one);
      }
      if (told.length > 0) changed += await costs.carryReplicaRuns(told);
      after = runs.at(-1)?.id ?? null;
      more = runs.length === pageSize;
    }
    return changed;
  }

  /** What the costs believe to go on, however long ago it ended. */
  async #openIds(): Promise<string[]> {
    const ids: string[] = [];
    for (let page = await this.#openAfter(null); page.length > 0; page = await this.#openAfter(page.at(-1) ?? null)) {
      ids.push(...page.map(({ nodeId }) => nodeId));
      if (page.length < pageSize) break;
    }
    return ids;
  }

  #openAfter(after: { readonly nodeId: string; readonly generation: number } | null) {
    return this.#parts.costs.listOpen({ source: 'replica', after, limit: pageSize });
  }

  /** Null where it is to be told later. */
  async #toReplicaRun(run: GpuRun, first: OrganizationRef, nowMs: number): Promise<ReplicaRun | null> {
    const engine = this.#parts.findEngine(run.model);
    const hardwareProfile = this.#profileOf(run, engine, nowMs);
    if (hardwareProfile === null) return null;
    return {
      runId: run.id,
      replicaName: run.replicaId,
      engineId: run.model,
      engineName: engine?.name ?? run.model,
      organization: (await this.#organizationOf(engine)) ?? first,
      hardwareProfile,
      gpus: run.gpuIds.length,
      startedMs: run.startedMs,
      readyMs: run.readyMs,
      ...endOf(run, nowMs),
    };
  }

  #profileOf({ host, gpuIds, startedMs, endedMs }: GpuRun, engine: EngineDefinition | undefined, nowMs: number) {
    if ((engine?.hardwareProfile ?? null) !== null) return engine?.hardwareProfile ?? null;
    const report = this.#parts.hosts().find(({ name }) => name === host);
    const name = report?.gpus.find(({ id }) => gpuIds.includes(id))?.profile ?? null;
    if (name !== null) return name;
    const isUnknown = report === undefined || !report.reachable;
    return isUnknown && endedMs === null && nowMs - startedMs < hostWaitMs ? null : defaultProfile;
  }

  async #organizationOf(engine: EngineDefinition | undefined): Promise<OrganizationRef | null> {
    const id = engine?.organizationId ?? null;
    if (engine === undefined || id === null) return null;
    const found = await this.#parts.organizations.find(id);
    if (found !== null) return found;
    const key = `${engine.id} ${id}`;
    if (!this.#warned.has(key)) {
      const fields = { engine: engine.id, file: engine.file, organization: formatId('org', id) };
      this.#parts.log.warn(fields, 'there is no such organization: its GPU-hours stand in the costs of the first one');
      this.#warned.add(key);
    }
    return null;
  }
}

/** An end that nobody may have seen is taken to be where the replica was seen last. */
function endOf(run: GpuRun, nowMs: number): Pick<ReplicaRun, 'endedMs' | 'endEstimated'> {
  const { endedMs, scrapedMs } = run;
  const seenMs = scrapedMs === null ? null : Math.max(run.startedMs, run.readyMs ?? 0, scrapedMs);
  if (endedMs === null) {
    const isSilent = seenMs !== null && nowMs - seenMs > silentMs;
    return isSilent ? { endedMs: seenMs, endEstimated: true } : { endedMs: null, endEstimated: false };
  }
  if (run.ended === 'clean') return { endedMs, endEstimated: false };
  if (seenMs !== null && endedMs - seenMs > silentMs) return { endedMs: seenMs, endEstimated: true };
  return { endedMs, endEstimated: run.endReason === 'vanished' };
}
