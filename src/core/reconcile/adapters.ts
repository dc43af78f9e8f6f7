import type { EngineHistory } from '#core/fleet/fleet.ts';
import type { Edge, EdgeTokens, EndedLater, UsageHour, UsageHours } from '#core/metering/metering.ts';
import { hourKey } from './edges.ts';

/**
 * An engine counts what its adapters do as its own model's, under that model's name alone. So the books of the adapters
 * are held against its counters together with their base's.
 */

/** Ids of bases by those of LoRA adapters. */
export type Bases = ReadonlyMap<string, string>;

/** Edges of bases, followed by the same of their adapters. */
export function withAdapters(edges: readonly Edge[], bases: Bases): readonly Edge[] {
  const adapters = adaptersOf(bases);
  return [...edges, ...edges.flatMap((edge) => (adapters.get(edge.model) ?? []).map((model) => ({ ...edge, model })))];
}

/**
 * The usage of adapters under their bases' ids.
 * @param edges those that `withAdapters` was given
 */
export function underBases(usage: UsageHours, edges: readonly Edge[], bases: Bases): UsageHours {
  if (bases.size === 0) return usage;
  const named = <Item extends { readonly model: string }>(item: Item): Item => {
    return { ...item, model: bases.get(item.model) ?? item.model };
  };
  return {
    hours: merge(usage.hours.map(named), addHours),
    endedLater: merge(usage.endedLater.map(named), addEnded),
    edges: foldEdges(usage.edges, edges, adaptersOf(bases)),
    ledger: usage.ledger.map((one) => ({ ...one, model: bases.get(one.model ?? '') ?? one.model })),
  };
}

/** Requests of the gateway's own, and those that are in no record: of adapters under their bases' ids. */
export function ownUnderBases(history: EngineHistory, bases: Bases): EngineHistory {
  const named = history.own.map((one) => ({ ...one, model: bases.get(one.model) ?? one.model }));
  const same = Map.groupBy(named, ({ hourMs, model, kind }) => `${hourKey(hourMs, model)} ${kind}`);
  return { ...history, own: [...same.values()].map((all) => all.reduce(addOwn)) };
}

type Own = EngineHistory['own'][number];

function addOwn(a: Own, b: Own): Own {
  return {
    ...a,
    requests: a.requests + b.requests,
    uncounted: a.uncounted + b.uncounted,
    promptTokens: a.promptTokens + b.promptTokens,
    completionTokens: a.completionTokens + b.completionTokens,
    lastMs: Math.max(a.lastMs, b.lastMs),
  };
}

function adaptersOf(bases: Bases): ReadonlyMap<string, readonly string[]> {
  const pairs = Map.groupBy(bases, ([, base]) => base);
  return new Map([...pairs].map(([base, own]) => [base, own.map(([adapter]) => adapter)]));
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
    unsure: a.unsure + b.unsure,
    unsureSequences: a.unsureSequences + b.unsureSequences,
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
  return { ...a, unsure: a.unsure + b.unsure, unsureSequences: a.unsureSequences + b.unsureSequences };
}

/** In the order of `withAdapters`. */
function foldEdges(
  found: readonly EdgeTokens[],
  edges: readonly Edge[],
  adapters: ReadonlyMap<string, readonly string[]>,
): readonly EdgeTokens[] {
  let next = edges.length;
  return edges.map(({ model }, index) => {
    const from = next;
    next += adapters.get(model)?.length ?? 0;
    const all = [found[index], ...found.slice(from, next)];
    return {
      promptTokens: all.reduce((sum, one) => sum + (one?.promptTokens ?? 0), 0),
      outputTokens: all.reduce((sum, one) => sum + (one?.outputTokens ?? 0), 0),
    };
  });
}
