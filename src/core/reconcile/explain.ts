import type { OwnRequests, ReplicaRun } from '#core/fleet/fleet.ts';
import type { GatewayRun } from '#core/gateways/gateways.ts';
import type { EdgeTokens, EndedLater, UsageHour } from '#core/metering/metering.ts';
import type { Known } from './known.ts';
import type { Explanation, ExplanationKind } from './reconciliation.ts';
import { addUnsure, noneUnsure } from './unsure.ts';

/** What is known of an hour of a model. */
export interface HourFacts {
  readonly model: string;
  readonly hourMs: number;
  readonly usage: UsageHour | null;
  readonly own: readonly OwnRequests[];
  /** When counters were read last in this hour, the earliest of several engines; null: not at all. */
  readonly readMs: number | null;
  /** Of requests under way at its end; null where no engine was there. */
  readonly carried: EdgeTokens | null;
  /** Unsure requests that were admitted earlier, and ended in this hour. */
  readonly endedLater: EndedLater | null;
  /** Runs that ended uncleanly in this hour, and tokens of requests since they were read last. */
  readonly ends: readonly RunTokens[];
  /**
   * Runs that had counted something before their counters were read first, and tokens of the hour until then: all of
   * the hour where no engine of the model was read before its end.
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

/** What may differ, by how much, and why. */
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

/** What so many sequences of a model can come to: its context, of the prompt and of what is made. */
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

/** The base that the books have them with may have counted fewer, and another one them. */
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
  // What it had under way may have been counted in the hour before its end as well.
  const gateways = gatewayRuns
    .filter(({ endedMs }) => endedMs >= at && endedMs < at + 2 * hourMs)
    .map((run): Reason => {
      const detail = `${run.id} on ${run.host}, slot ${run.slot}`;
      return { widens: 'moreMax', bound: boundOfGateway(run, hour, known), kind: 'gateway_ended', count: 1, detail };
    });
  return [...replicas, ...found, ...gateways];
}

/** Each request is sent to a second replica at most, and what it tried replicas out with may not have been noted. */
const triesMax = 2;
const ownSequencesMax = 4;

/** What a gateway had under way at an engine is in no book. */
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
  // A request that runs now may have begun in the hour before.
  if (at + 2 * hourMs <= nowMs || at > nowMs) return [];
  const here = (running.get(model) ?? 0) + unwritten;
  if (here === 0 && others === 0) return [];
  const detail = others === 0 ? {} : { detail: `${others} other gateways may have some` };
  return [{ widens: 'moreMax', bound: boundless, kind: 'running', count: here, ...detail }];
}
