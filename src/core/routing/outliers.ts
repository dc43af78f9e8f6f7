/**
 * Ejects failing replicas from routing and readmits them, by the rules of Envoy's outlier detection (docs:
 * upstream/outlier). A number of failures in a row, or a rate of failures in a window, ejects a replica for a time that
 * grows with each ejection. This ejects at most half of the replicas: if more fail, a shared dependency is more likely
 * broken, or a request that no replica can answer, and the others would only be overloaded. A replica that refuses
 * connections is always ejected. After the ejection time one request is let through as a trial: if the replica answers,
 * it is readmitted; if not, it is ejected for longer.
 */

/**
 * Outcome of a request on a replica: `answered`, also for rejections of an invalid request; `failed` if the replica
 * broke off, reported an error of its own or timed out; `unreachable` if nothing listens; `unknown` if the request was
 * ended before its outcome.
 */
export type ReplicaOutcome = 'answered' | 'failed' | 'unreachable' | 'unknown';

/** Change caused by a report. */
export type OutlierChange = 'ejected' | 'readmitted' | null;

interface ReplicaHealth {
  failuresInRow: number;
  /** Failures in the window that began at `windowMs`. */
  failures: number;
  requests: number;
  windowMs: number;
  /** Ejections that are not forgiven yet. */
  ejections: number;
  /** Time from which one trial request is allowed; each trial moves the time on. Null while the replica is admitted. */
  trialAtMs: number | null;
  /** Time when the replica was last ejected, readmitted, or forgiven one ejection. */
  changedMs: number;
}

const failuresInRowMax = 5;
/** A rate of failures counts only from `rateRequestsMin` requests per window on. */
const rateWindowMs = 10_000;
const rateRequestsMin = 20;
const rateMax = 0.5;
const ejectedShareMax = 0.5;
/**
 * Multiplied by the number of ejections; shorter than Envoy's 30 s, because one of a few replicas is a large part of a
 * model's capacity.
 */
const ejectionMs = 5_000;
const ejectionMsMax = 120_000;
/** Time without an ejection after which a replica is forgiven one ejection. */
const forgivenAfterMs = 60_000;

export interface OutlierReport {
  readonly replicaId: string;
  readonly outcome: ReplicaOutcome;
  /** True if the request was the trial of an ejected replica. Other reports about an ejected replica are outdated. */
  readonly trial: boolean;
  /** Number of replicas that the engine has now, including ejected ones. */
  readonly replicaCount: number;
}

/** Health of the replicas of one engine. Times are monotonic milliseconds. */
export class Outliers {
  readonly #replicas = new Map<string, ReplicaHealth>();

  /** True if no replica has failed lately. */
  get clean(): boolean {
    return this.#replicas.size === 0;
  }

  /** Returns an ejected replica whose time is over: the next request is its trial. */
  due<Candidate extends { readonly id: string }>(candidates: readonly Candidate[], nowMs: number): Candidate | null {
    return candidates.find(({ id }) => (this.#replicas.get(id)?.trialAtMs ?? Infinity) <= nowMs) ?? null;
  }

  /**
   * Returns the candidates that are not ejected. Returns all if all are ejected: a failing replica is better than none,
   * and the fleet considers them running.
   */
  admitted<Candidate extends { readonly id: string }>(candidates: readonly Candidate[]): readonly Candidate[] {
    if (this.clean) return candidates;
    const admitted = candidates.filter(({ id }) => !this.#isOut(id));
    return admitted.length > 0 ? admitted : candidates;
  }

  /** Records a trial of a replica. If the trial's outcome is never reported, another trial follows. */
  tried(replicaId: string, nowMs: number): void {
    const health = this.#replicas.get(replicaId);
    if (health !== undefined && health.trialAtMs !== null) health.trialAtMs = nowMs + timeOf(health.ejections);
  }

  report({ replicaId, outcome, trial, replicaCount }: OutlierReport, nowMs: number): OutlierChange {
    if (outcome === 'unknown' || (this.#isOut(replicaId) && !trial)) return null;
    if (outcome === 'answered') return this.#answered(replicaId, nowMs);
    const health = this.#replicas.get(replicaId) ?? newHealth(nowMs);
    this.#replicas.set(replicaId, health);
    count(health, true, nowMs);
    health.failuresInRow += 1;
    const isOut = trial || outcome === 'unreachable' || (isFailing(health) && this.#mayEject(replicaCount));
    if (isOut) eject(health, nowMs);
    return isOut ? 'ejected' : null;
  }

  /** Forgets a replica that no longer exists. */
  forget(replicaId: string): void {
    this.#replicas.delete(replicaId);
  }

  #isOut(replicaId: string): boolean {
    return (this.#replicas.get(replicaId)?.trialAtMs ?? null) !== null;
  }

  #answered(replicaId: string, nowMs: number): OutlierChange {
    const health = this.#replicas.get(replicaId);
    if (health === undefined) return null;
    health.failuresInRow = 0;
    if (health.trialAtMs !== null) {
      Object.assign(health, { trialAtMs: null, requests: 0, failures: 0, windowMs: nowMs, changedMs: nowMs });
      return 'readmitted';
    }
    count(health, false, nowMs);
    if (nowMs - health.changedMs >= forgivenAfterMs) {
      health.ejections = Math.max(0, health.ejections - 1);
      health.changedMs = nowMs;
      if (health.ejections === 0 && health.failures === 0) this.forget(replicaId);
    }
    return null;
  }

  #mayEject(replicaCount: number): boolean {
    let out = 0;
    for (const { trialAtMs } of this.#replicas.values()) if (trialAtMs !== null) out += 1;
    return out + 1 <= replicaCount * ejectedShareMax;
  }
}

function newHealth(nowMs: number): ReplicaHealth {
  return {
    failuresInRow: 0,
    failures: 0,
    requests: 0,
    windowMs: nowMs,
    ejections: 0,
    trialAtMs: null,
    changedMs: nowMs,
  };
}

function count(health: ReplicaHealth, failed: boolean, nowMs: number): void {
  if (nowMs - health.windowMs >= rateWindowMs) {
    health.windowMs = nowMs;
    health.requests = 0;
    health.failures = 0;
  }
  health.requests += 1;
  if (failed) health.failures += 1;
}

function isFailing({ failuresInRow, requests, failures }: ReplicaHealth): boolean {
  return failuresInRow >= failuresInRowMax || (requests >= rateRequestsMin && failures >= requests * rateMax);
}

function timeOf(ejections: number): number {
  return Math.min(ejectionMsMax, ejectionMs * ejections);
}

function eject(health: ReplicaHealth, nowMs: number): void {
  health.ejections += 1;
  health.changedMs = nowMs;
  health.trialAtMs = nowMs + timeOf(health.ejections);
}
