import type { Clock } from '#base/clock.ts';
import type { Log } from '#base/log.ts';
import type { EngineDefinition } from '#core/catalog/catalog.ts';
import type { Costs, OrganizationRef, ReplicaRun } from '#core/costs/costs.ts';
import type { GpuRun, GpuRunsWanted, HostReport } from '#core/fleet/fleet.ts';
import { formatId } from '#base/id.ts';

/**
 * Reports the fleet's GPU runs to the costs, because the two do not know each other. Reporting a run again changes
 * nothing. So passes may repeat, run on several gateways, and stop halfway.
 */
export interface ReplicaCarrier {
  /** @returns the number of runs that were new or had changed */
  carry(): Promise<number>;
}

export interface ReplicaCarrierParts {
  readonly readRuns: (wanted: GpuRunsWanted) => Promise<readonly GpuRun[]>;
  readonly costs: Pick<Costs, 'carryReplicaRuns' | 'listOpen'>;
  /** Finds an engine by its model id; undefined if its file was deleted. */
  readonly findEngine: (id: string) => EngineDefinition | undefined;
  readonly hosts: () => readonly HostReport[];
  readonly organizations: {
    find(id: string): Promise<OrganizationRef | null>;
    /** Returns the organization that was created first; null if there is none. */
    first(): Promise<OrganizationRef | null>;
  };
  readonly clock: Clock;
  readonly log: Log;
}

const pageSize = 1000;
const dayMs = 86_400_000;
/**
 * Milliseconds by which the row of a run may be late. Rows are written within seconds; the next pass over all runs
 * finds later ones.
 */
const lateMs = 3_600_000;
/**
 * Milliseconds without a scrape after which nobody watched the run: scrapes normally happen every few seconds. The
 * replica is then counted only until its last scrape.
 */
const silentMs = 5 * 60_000;
/** Milliseconds that a run waits for its host to be known, because the host reports the kind of GPU. */
const hostWaitMs = 15 * 60_000;
const defaultProfile = 'default';

export function createReplicaCarrier(parts: ReplicaCarrierParts): ReplicaCarrier {
  return new Carrier(parts);
}

class Carrier implements ReplicaCarrier {
  readonly #parts: ReplicaCarrierParts;
  /** Start of the last pass, and of the last pass over all runs; null before the first pass and after a failed pass. */
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

  /** Reads the ids of runs that the costs have as running, however long ago the runs ended. */
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

  /** Converts a run to the costs' format; null if it must be reported later. */
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
      gpuShare: run.gpuShare,
      startedMs: run.startedMs,
      readyMs: run.readyMs,
      ...endOf(run, nowMs),
    };
  }

  #profileOf({ host, gpuIds, startedMs, endedMs }: GpuRun, engine: EngineDefinition | undefined, nowMs: number) {
    if ((engine?.hardwareProfile ?? null) !== null) return engine?.hardwareProfile ?? null;
    const report = this.#parts.hosts().find(({ name }) => name === host);
    const name = report?.gpus.find(({ id }) => gpuIds.includes(id))?.profile ?? null;
    // A slice has the price of its card, for its part of the card.
    if (name !== null) return name.replace(/ MIG \S+$/, '');
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
      this.#parts.log.warn(
        fields,
        'an engine file names an organization that does not exist; its GPU-hours are in the costs of the first organization. Correct the file',
      );
      this.#warned.add(key);
    }
    return null;
  }
}

/** Returns the end of a run. If nobody may have seen the end, the last scrape is taken as the end. */
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
