import type { OwnRequests, ReplicaRun } from '#core/fleet/fleet.ts';
import type { GatewayRun } from '#core/gateways/gateways.ts';
import type { EdgeTokens, EndedLater, UsageHour } from '#core/metering/metering.ts';
import type { Known } from './known.ts';
import type { Explanation, ExplanationKind } from './reconciliation.ts';
import { addUnsure, noneUnsure } from './unsure.ts';

/** Facts about an hour of a model. */
export interface HourFacts {
  readonly model: string;
  readonly hourMs: number;
  readonly usage: UsageHour | null;
  readonly own: readonly OwnRequests[];
  /** Time of the last reading of counters in this hour, the earliest of several engines; null if none were read. */
  readonly readMs: number | null;
  /** Tokens of requests in progress at the hour's end; null if there was no engine. */
  readonly carried: EdgeTokens | null;
  /** Requests with uncertain counts that were admitted earlier and ended in this hour. */
  readonly endedLater: EndedLater | null;
  /** Runs that ended uncleanly in this hour, and the tokens of requests since their last reading. */
  readonly ends: readonly RunTokens[];
  /**
   * Runs that had counted tokens before the first reading of their counters, and the tokens of the hour until then: all
   * of the hour if no engine of the model was read before the hour's end.
   */
  readonly finds: readonly RunTokens[];
}

interface RunTokens {
  readonly run: ReplicaRun;
  readonly lost: EdgeTokens | null;
}

interface Bound {
  readonly promptTokens: number;
  readonly completionTokens: number;
}

/** Possible differences, their bounds and reasons. */
export interface Explained {
  readonly carryMax: Bound;
  readonly moreMax: Bound;
  readonly fewerMax: Bound;
  readonly explanations: readonly Explanation[];
}

const hourMs = 3_600_000;
const lagMs = 1000;
const nothing: Bound = { promptTokens: 0, completionTokens: 0 };
const boundless: Bound = { promptTokens: Infinity, completionTokens: Infinity };

/** One reason, and the bound that it widens. */
interface Reason {
  readonly widens: 'carryMax' | 'moreMax' | 'fewerMax' | null;
  readonly bound: Bound;
  readonly kind: ExplanationKind;
  readonly count: number;
  readonly detail?: string;
}

export function explainHour(hour: HourFacts, known: Known): Explained {
  const reasons = [
    ...reasonsOfUsage(hour, known),
    ...reasonsOfOwn(hour),
    ...reasonsOfMoved(hour, known),
    ...reasonsOfEnds(hour, known),
    ...reasonsOfPresent(hour, known),
  ];
  const widest = (which: Reason['widens']): Bound =>
    reasons.filter(({ widens }) => widens === which).reduce((sum, { bound }) => plus(sum, bound), nothing);
  const explanations = reasons.map(({ kind, count, bound, detail }) => ({
    kind,
    count,
    promptTokens: finite(bound.promptTokens),
    completionTokens: finite(bound.completionTokens),
    detail: detail ?? null,
  }));
  return { carryMax: widest('carryMax'), moreMax: widest('moreMax'), fewerMax: widest('fewerMax'), explanations };
}

const plus = (a: Bound, b: Bound): Bound => ({
  promptTokens: a.promptTokens + b.promptTokens,
  completionTokens: a.completionTokens + b.completionTokens,
});

const finite = (tokens: number): number | null => (Number.isFinite(tokens) ? tokens : null);

const boundOf = ({ promptTokens, outputTokens }: EdgeTokens): Bound => ({
  promptTokens,
  completionTokens: outputTokens,
});

/**
 * Returns the maximum tokens of a number of sequences: each may use the model's context for the prompt, and for output.
 */
function boundOfSequences(sequences: number, { model }: HourFacts, { contextLengthOf }: Known): Bound {
  const tokens = sequences === 0 ? 0 : sequences * (contextLengthOf(model) ?? Infinity);
  return { promptTokens: tokens, completionTokens: tokens };
}

function reasonsOfUsage(hour: HourFacts, known: Known): Reason[] {
  const { usage, carried, endedLater } = hour;
  const reasons: Reason[] = [];
  if (carried !== null && carried.promptTokens + carried.outputTokens > 0) {
    reasons.push({ widens: 'carryMax', bound: boundOf(carried), kind: 'carried', count: 1 });
  }
  const unsure = addUnsure(usage ?? noneUnsure, endedLater ?? noneUnsure);
  if (unsure.unsure > 0) {
    const made = boundOfSequences(unsure.unsureSequences, hour, known);
    const { promptTokens: read } = boundOfSequences(unsure.unsureTexts, hour, known);
    const { unsurePromptTokens: prompt, unsureCompletionTokens: completionTokens } = unsure;
    const bound = plus(made, { promptTokens: read + prompt, completionTokens });
    reasons.push({ widens: 'moreMax', bound, kind: 'unsure', count: unsure.unsure });
  }
  if (usage === null) return reasons;
  if (usage.promptTokensUnsure > 0) {
    const bound = { promptTokens: usage.promptTokensUnsure, completionTokens: 0 };
    reasons.push({ widens: 'fewerMax', bound, kind: 'choices', count: 1 });
  }
  if (usage.isBeforeRetention) {
    const bound = { promptTokens: Infinity, completionTokens: 0 };
    reasons.push({ widens: 'moreMax', bound, kind: 'retention', count: usage.requests });
  }
  if (usage.cacheHits > 0) {
    reasons.push({ widens: null, bound: nothing, kind: 'cache_hit', count: usage.cacheHits });
  }
  return reasons;
}

function reasonsOfOwn({ own, readMs, carried }: HourFacts): Reason[] {
  return own.flatMap((one): Reason[] => {
    const { kind, requests: count, uncounted, uncountedMax, promptTokens, completionTokens } = one;
    const bound = { promptTokens, completionTokens };
    const reasons: Reason[] = count === 0 ? [] : [{ widens: null, bound, kind, count }];
    if (uncounted > 0)
      reasons.push({ widens: 'moreMax', bound: uncountedMax ?? boundless, kind: 'uncounted', count: uncounted });
    const isCarried = readMs === null ? carried !== null : one.lastMs > readMs - lagMs;
    if (isCarried) reasons.push({ widens: 'carryMax', bound, kind: 'carried', count });
    return reasons;
  });
}

/**
 * Reasons for moved adapters: the base with their records may have counted fewer tokens, and another base these tokens.
 */
function reasonsOfMoved({ model, hourMs: at }: HourFacts, { moved }: Known): Reason[] {
  return moved.flatMap(({ adapter, hourMs: movedMs, from, to, requests: count, ...bound }): Reason[] => {
    if (movedMs !== at || (from !== model && !to.includes(model))) return [];
    const detail = `${adapter}: ${[from, ...to].join(', then ')}`;
    return [{ widens: from === model ? 'fewerMax' : 'moreMax', bound, kind: 'adapter_moved', count, detail }];
  });
}

function reasonsOfEnds(hour: HourFacts, known: Known): Reason[] {
  const { hourMs: at, ends, finds, own } = hour;
  const { gatewayRuns } = known;
  const ownTokens = own.reduce((sum, one) => plus(sum, one), nothing);
  const replicas = ends.map(({ run, lost }): Reason => {
    const isNoted = own.some(({ lastMs }) => lastMs > (run.scrapedMs ?? run.startedMs) - lagMs);
    const bound = plus(lost === null ? nothing : boundOf(lost), isNoted ? ownTokens : nothing);
    const detail = `${run.replicaId} on ${run.host}: ${run.endReason ?? 'ended'}`;
    return { widens: 'fewerMax', bound, kind: 'replica_ended', count: 1, detail };
  });
  const found = finds.map(({ run, lost }): Reason => {
    const detail = `${run.replicaId} on ${run.host}`;
    return {
      widens: 'fewerMax',
      bound: lost === null ? nothing : boundOf(lost),
      kind: 'replica_found',
      count: 1,
      detail,
    };
  });
  // Tokens of the gateway's requests in progress may also have been counted in the hour before its end.
  const gateways = gatewayRuns
    .filter(({ endedMs }) => endedMs >= at && endedMs < at + 2 * hourMs)
    .map((run): Reason => {
      const detail = `${run.id} on ${run.host}, slot ${run.slot}`;
      return { widens: 'moreMax', bound: boundOfGateway(run, hour, known), kind: 'gateway_ended', count: 1, detail };
    });
  return [...replicas, ...found, ...gateways];
}

/**
 * Maximum replicas that a request is sent to; `ownSequencesMax`: sequences of the gateway's own trials that may not be
 * recorded.
 */
const triesMax = 2;
const ownSequencesMax = 4;

/** Returns a bound for the requests that a gateway had in progress at an engine; they have no record. */
function boundOfGateway({ underWay }: GatewayRun, hour: HourFacts, known: Known): Bound {
  const { inFlightMax, sequencesMax, inputsMax, textsMax } = known.limits;
  if (underWay === null)
    return boundOfSequences(inFlightMax * Math.max(sequencesMax, inputsMax, textsMax), hour, known);
  const own = boundOfSequences(ownSequencesMax, hour, known);
  const { promptTokens = 0, completionTokens = 0 } = underWay[hour.model] ?? {};
  return plus(own, { promptTokens: triesMax * promptTokens, completionTokens: triesMax * completionTokens });
}

function reasonsOfPresent({ model, hourMs: at }: HourFacts, { present }: Known): Reason[] {
  const { nowMs, running, unwritten, others } = present;
  // A request that runs now may have begun in the previous hour.
  if (at + 2 * hourMs <= nowMs || at > nowMs) return [];
  const here = (running.get(model) ?? 0) + unwritten;
  if (here === 0 && others === 0) return [];
  const detail = others === 0 ? {} : { detail: `${others} other gateways may have running requests` };
  return [{ widens: 'moreMax', bound: boundless, kind: 'running', count: here, ...detail }];
}
