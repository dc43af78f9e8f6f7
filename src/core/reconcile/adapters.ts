import type { EngineHistory } from '#core/fleet/fleet.ts';
import type { Edge, EdgeTokens, EndedLater, UsageHour, UsageHours } from '#core/metering/metering.ts';
import { hourKey } from './edges.ts';
import type { MovedAdapter } from './known.ts';
import { addUnsure, noneUnsure } from './unsure.ts';

/**
 * Assigns the usage of adapters to their base models. An engine counts its adapters' tokens only under the name of its
 * own model, so the adapters' records are compared with the counters together with the records of their base at that
 * time. In an hour in which an adapter moved, the records do not show which base had which request: all usage is
 * assigned to the first base, and the other may have counted some of it.
 */

/**
 * The models whose engines served a model within a span, oldest first: the model itself, or for adapters their bases.
 */
export interface Bases {
  readonly adapters: readonly string[];
  within(modelId: string, span: { readonly fromMs: number; readonly toMs: number }): readonly string[];
}

const hourMs = 3_600_000;
/** Maximum time that a request may run with the base that its adapter had at admission. */
const requestMsMax = 24 * hourMs;

/** Returns edges of bases, followed by equal edges for their adapters. */
export function withAdapters(edges: readonly Edge[], bases: Bases): readonly Edge[] {
  return [...edges, ...edges.flatMap((edge) => adaptersAt(edge, bases).map((model) => ({ ...edge, model })))];
}

/** Returns the adapters that may have had requests in progress at an engine of the model. */
function adaptersAt({ model, fromMs, toMs }: Edge, bases: Bases): readonly string[] {
  const span = { fromMs: fromMs - requestMsMax, toMs };
  return bases.adapters.filter((adapter) => adapter !== model && bases.within(adapter, span).includes(model));
}

const basesOfHour = (model: string, atMs: number, bases: Bases): readonly string[] =>
  bases.within(model, { fromMs: atMs, toMs: atMs + hourMs });

/**
 * Returns the usage with that of adapters under their bases' ids.
 * @param edges the edges passed to `withAdapters`
 */
export function underBases(usage: UsageHours, edges: readonly Edge[], bases: Bases): UsageHours {
  if (bases.adapters.length === 0) return usage;
  return {
    hours: merge(
      usage.hours.flatMap((hour) => {
        const [model = hour.model, ...others] = basesOfHour(hour.model, hour.hourMs, bases);
        return [{ ...hour, model }, ...others.flatMap((other) => unsureOf(hour, other))];
      }),
      addHours,
    ),
    endedLater: merge(
      usage.endedLater.flatMap((one) => {
        const span = { fromMs: one.hourMs - requestMsMax, toMs: one.hourMs + hourMs };
        return bases.within(one.model, span).map((model) => ({ ...one, model }));
      }),
      addEnded,
    ),
    edges: foldEdges(usage.edges, edges, bases),
    ledger: usage.ledger.map((one) => {
      return { ...one, model: one.model === null ? null : (basesOfHour(one.model, one.hourMs, bases)[0] ?? one.model) };
    }),
  };
}

/** Returns the part of an hour that is uncertain, because another base may have had it. */
function unsureOf(hour: UsageHour, model: string): UsageHour[] {
  const { promptTokensUnsure, unsure, isBeforeRetention } = hour;
  if (unsure === 0 && promptTokensUnsure === 0 && !isBeforeRetention) return [];
  const nothing = { requests: 0, cacheHits: 0, inputTokens: 0, promptTokens: 0, outputTokens: 0, costPicoUsd: 0n };
  const unknown = { ...addUnsure(hour, noneUnsure), promptTokensUnsure, sums: null, isBeforeRetention };
  return [{ model, hourMs: hour.hourMs, ...nothing, ...unknown }];
}

/** Returns the gateway's own requests and requests without a record, with those of adapters under their bases' ids. */
export function ownUnderBases(history: EngineHistory, bases: Bases): EngineHistory {
  const named = history.own.flatMap((one): Own[] => {
    const [model = one.model, ...others] = basesOfHour(one.model, one.hourMs, bases);
    const unknown = one.uncounted === 0 ? [] : others;
    return [
      { ...one, model },
      ...unknown.map((other) => ({ ...one, model: other, requests: 0, promptTokens: 0, completionTokens: 0 })),
    ];
  });
  const same = Map.groupBy(named, ({ hourMs: at, model, kind }) => `${hourKey(at, model)} ${kind}`);
  return { ...history, own: [...same.values()].map((all) => all.reduce(addOwn)) };
}

/** Finds adapters that moved. @param history, usage before their assignment to bases */
export function findMoved({ own }: EngineHistory, usage: UsageHours, bases: Bases): readonly MovedAdapter[] {
  const used = [
    ...usage.hours.map(({ outputTokens: completionTokens, ...hour }) => ({ ...hour, completionTokens })),
    ...own,
  ];
  const same = Map.groupBy(used, ({ hourMs: at, model }) => hourKey(at, model));
  return [...same.values()].flatMap((all): MovedAdapter[] => {
    const { model: adapter = '', hourMs: at = 0 } = all[0] ?? {};
    const [from = adapter, ...to] = basesOfHour(adapter, at, bases);
    if (to.length === 0) return [];
    const sum = (read: (one: (typeof all)[number]) => number): number =>
      all.reduce((total, one) => total + read(one), 0);
    const promptTokens = sum((one) => one.promptTokens);
    const completionTokens = sum((one) => one.completionTokens);
    return [{ adapter, hourMs: at, from, to, requests: sum((one) => one.requests), promptTokens, completionTokens }];
  });
}

type Own = EngineHistory['own'][number];

function addMax(a: Own['uncountedMax'], b: Own['uncountedMax']): Own['uncountedMax'] {
  if (a === null || b === null) return null;
  return {
    promptTokens: a.promptTokens + b.promptTokens,
    completionTokens: a.completionTokens + b.completionTokens,
  };
}

function addOwn(a: Own, b: Own): Own {
  return {
    ...a,
    requests: a.requests + b.requests,
    uncounted: a.uncounted + b.uncounted,
    uncountedMax: addMax(a.uncountedMax, b.uncountedMax),
    promptTokens: a.promptTokens + b.promptTokens,
    completionTokens: a.completionTokens + b.completionTokens,
    lastMs: Math.max(a.lastMs, b.lastMs),
  };
}

function merge<Item extends { readonly model: string; readonly hourMs: number }>(
  items: readonly Item[],
  add: (a: Item, b: Item) => Item,
): readonly Item[] {
  const merged = new Map<string, Item>();
  for (const item of items) {
    const key = hourKey(item.hourMs, item.model);
    const known = merged.get(key);
    merged.set(key, known === undefined ? item : add(known, item));
  }
  return [...merged.values()];
}

function addHours(a: UsageHour, b: UsageHour): UsageHour {
  return {
    ...a,
    requests: a.requests + b.requests,
    cacheHits: a.cacheHits + b.cacheHits,
    inputTokens: a.inputTokens + b.inputTokens,
    promptTokens: a.promptTokens + b.promptTokens,
    promptTokensUnsure: a.promptTokensUnsure + b.promptTokensUnsure,
    outputTokens: a.outputTokens + b.outputTokens,
    costPicoUsd: a.costPicoUsd + b.costPicoUsd,
    ...addUnsure(a, b),
    sums: addSums(a.sums, b.sums),
    isBeforeRetention: a.isBeforeRetention || b.isBeforeRetention,
  };
}

function addSums(a: UsageHour['sums'], b: UsageHour['sums']): UsageHour['sums'] {
  if (a === null || b === null) return a ?? b;
  return {
    requests: a.requests + b.requests,
    inputTokens: a.inputTokens + b.inputTokens,
    outputTokens: a.outputTokens + b.outputTokens,
    costPicoUsd: a.costPicoUsd + b.costPicoUsd,
  };
}

function addEnded(a: EndedLater, b: EndedLater): EndedLater {
  return { ...a, ...addUnsure(a, b) };
}

/** Adds the edges of adapters to those of their bases; expects the order of `withAdapters`. */
function foldEdges(found: readonly EdgeTokens[], edges: readonly Edge[], bases: Bases): readonly EdgeTokens[] {
  let next = edges.length;
  return edges.map((edge, index) => {
    const from = next;
    next += adaptersAt(edge, bases).length;
    const all = [found[index], ...found.slice(from, next)];
    return {
      promptTokens: all.reduce((sum, one) => sum + (one?.promptTokens ?? 0), 0),
      outputTokens: all.reduce((sum, one) => sum + (one?.outputTokens ?? 0), 0),
    };
  });
}
