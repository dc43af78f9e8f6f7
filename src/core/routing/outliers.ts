/**
 * Takes replicas that fail out of routing and lets them back in, by the rules of Envoy's outlier detection
 * (docs: upstream/outlier): so many failures in a row, or so many of the last ones, for a time that grows with each
 * ejection, and never more than half of the replicas for that. What they need in common to fail is more likely broken
 * then, or a request that no replica can answer, and the rest would only be overrun. A replica that refuses to be
 * connected to is out whatever the others do. After its time one request is let through: if that is answered the replica
 * is back, if not it is out for longer.
 */

/**
 * How a replica did with a request: `answered`, refusals of a wrong request included; `failed` when it broke, said
 * so itself or let its time pass; `unreachable` when nothing listens; `unknown` when the request was ended before that
 * was known.
 */
export type ReplicaOutcome = 'answered' | 'failed' | 'unreachable' | 'unknown';

/** What a report changed. */
export type OutlierChange = 'ejected' | 'readmitted' | null;

interface ReplicaHealth {
  failuresInRow: number;
  /** Failures of the window that began at `windowMs`. */
  failures: number;
  requests: number;
  windowMs: number;
  /** Ejections that are not forgiven yet. */
  ejections: number;
  /** From when on one request may try it, which moves the moment on; null while the replica is in. */
  trialAtMs: number | null;
  /** When the replica was last taken out, let in, or forgiven for one ejection. */
  changedMs: number;
}

const failuresInRowMax = 5;
/** A rate says something from so many requests in a window on. */
const rateWindowMs = 10_000;
const rateRequestsMin = 20;
const rateMax = 0.5;
const ejectedShareMax = 0.5;
/** Times the number of ejections; shorter than Envoy's 30 s, since one of a few replicas is a large part of a model. */
const ejectionMs = 5_000;
const ejectionMsMax = 120_000;
/** A replica that has been in for so long is forgiven one ejection. */
const forgivenAfterMs = 60_000;

export interface OutlierReport {
  readonly replicaId: string;
  readonly outcome: ReplicaOutcome;
  /** The request was the one let through to a replica that was out. What others say of that one is old. */
  readonly trial: boolean;
  /** Replicas that the engine has now, those included that are out. */
  readonly replicaCount: number;
}

/** The replicas of one engine. Times are monotonic milliseconds. */
export class Outliers {
  readonly #replicas = new Map<string, ReplicaHealth>();

  /** Whether none has failed lately. */
  get clean(): boolean {
    return this.#replicas.size === 0;
  }

  /** A replica that is out and whose time is over: the next request is to try it. */
  due<Candidate extends { readonly id: string }>(candidates: readonly Candidate[], nowMs: number): Candidate | null {
    return candidates.find(({ id }) => (this.#replicas.get(id)?.trialAtMs ?? Infinity) <= nowMs) ?? null;
  }

  /**
   * Those of the candidates that may be sent to. All of them where none may: a replica that fails is better than none,
   * and the fleet thinks they run.
   */
  admitted<Candidate extends { readonly id: string }>(candidates: readonly Candidate[]): readonly Candidate[] {
    if (this.clean) return candidates;
    const admitted = candidates.filter(({ id }) => !this.#isOut(id));
    return admitted.length > 0 ? admitted : candidates;
  }

  /** The replica that was due is tried. A trial that is never heard of again is followed by another. */
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

  /** A replica that is gone. */
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
