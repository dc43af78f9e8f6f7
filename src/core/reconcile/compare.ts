import type { CountedHour, OwnRequests, ReplicaRun } from '#core/fleet/fleet.ts';
import type { EndedLater, LedgerDifference, UsageHour, UsageHours } from '#core/metering/metering.ts';
import { findUnexplained } from './balance.ts';
import { type Edges, hourKey } from './edges.ts';
import { explainHour, type HourFacts } from './explain.ts';
import type { Known } from './known.ts';
import type { ReconciledHour, Reconciliation } from './reconciliation.ts';

const hourMs = 3_600_000;

/** All facts about one hour and model, before the comparison. */
interface Hour extends HourFacts {
  readonly counted: ReconciledHour['counted'];
  readonly ledger: readonly LedgerDifference[];
  readonly expected: ReconciledHour['expected'];
}

export function compare(known: Known, usage: UsageHours, edges: Edges): Reconciliation {
  const { span } = known;
  const models = new Set([
    ...usage.hours.map(({ model }) => model),
    ...known.history.runs.map(({ model }) => model),
    ...known.history.own.map(({ model }) => model),
  ]);
  const index = indexOf(known, usage, edges);
  const hours = [...models].toSorted().flatMap((model) => compareModel(model, known, index));
  hours.push(...lostHours(usage.ledger, known));
  hours.sort((a, b) => a.hourMs - b.hourMs || ((a.model ?? '') < (b.model ?? '') ? -1 : 1));
  const unexplained = hours.filter(({ state }) => state === 'unexplained').length;
  return { ...span, hours, ledger: usage.ledger, unexplained };
}

/** Maps are keyed by `hour model`. */
interface Index {
  readonly edges: Edges;
  readonly usage: UsageHours;
  readonly hours: ReadonlyMap<string, UsageHour>;
  readonly counted: ReadonlyMap<string, readonly CountedHour[]>;
  readonly own: ReadonlyMap<string, readonly OwnRequests[]>;
  readonly ledger: ReadonlyMap<string, readonly LedgerDifference[]>;
  readonly endedLater: ReadonlyMap<string, EndedLater>;
}

function indexOf({ history }: Known, usage: UsageHours, edges: Edges): Index {
  const models = new Map(history.runs.map(({ id, model }) => [id, model]));
  return {
    edges,
    usage,
    hours: new Map(usage.hours.map((hour) => [hourKey(hour.hourMs, hour.model), hour])),
    counted: Map.groupBy(history.hours, (hour) => hourKey(hour.hourMs, models.get(hour.runId) ?? '')),
    own: Map.groupBy(history.own, (one) => hourKey(one.hourMs, one.model)),
    ledger: Map.groupBy(usage.ledger, (one) => hourKey(one.hourMs, one.model ?? '')),
    endedLater: new Map(usage.endedLater.map((one) => [hourKey(one.hourMs, one.model), one])),
  };
}

function compareModel(model: string, known: Known, index: Index): readonly ReconciledHour[] {
  const { fromMs, toMs } = known.span;
  const hours: Hour[] = [];
  for (let at = fromMs; at < toMs && at <= known.present.nowMs + hourMs; at += hourMs) {
    hours.push(gather(model, at, known, index));
  }
  const openKey = index.edges.ofHours.get(hourKey(fromMs - hourMs, model));
  const open = openKey === undefined ? undefined : index.usage.edges[openKey];
  const explained = hours.map((hour) => explainHour(hour, known));
  const isCounted = known.history.runs.some((run) => run.model === model && run.scrapedMs !== null);
  const balanceOf = (kind: 'promptTokens' | 'completionTokens', openMax: number): readonly number[] =>
    findUnexplained(
      hours.map((hour, place) => ({
        counted: hour.counted?.[kind] ?? 0,
        expected: hour.expected[kind],
        carryMax: explained[place]?.carryMax[kind] ?? 0,
        moreMax: explained[place]?.moreMax[kind] ?? 0,
        fewerMax: explained[place]?.fewerMax[kind] ?? 0,
      })),
      openMax,
    );
  const prompt = isCounted ? balanceOf('promptTokens', open?.promptTokens ?? 0) : [];
  const completion = isCounted ? balanceOf('completionTokens', open?.outputTokens ?? 0) : [];
  return hours.flatMap((hour, place) => {
    if (isEmpty(hour)) return [];
    const unexplained = { promptTokens: prompt[place] ?? 0, completionTokens: completion[place] ?? 0 };
    return [judge(hour, unexplained, { known, isCounted, explanations: explained[place]?.explanations ?? [] })];
  });
}

function gather(model: string, at: number, { history }: Known, { edges, usage, ...index }: Index): Hour {
  const key = hourKey(at, model);
  const counted = index.counted.get(key) ?? [];
  const own = index.own.get(key) ?? [];
  const hour = index.hours.get(key) ?? null;
  const edge = edges.ofHours.get(key);
  const ends = history.runs.filter((run) => {
    const { ended, endedMs } = run;
    return run.model === model && ended === 'unclean' && endedMs !== null && endedMs >= at && endedMs < at + hourMs;
  });
  const sum = <Item>(items: readonly Item[], read: (item: Item) => number): number =>
    items.reduce((total, item) => total + read(item), 0);
  const ofModel = history.runs.filter((run) => run.model === model);
  const found = ofModel.filter((run) => run.isFound && run.startedMs >= at && run.startedMs < at + hourMs);
  const unread = foundAfter(ofModel, at);
  return {
    model,
    hourMs: at,
    usage: hour,
    own,
    readMs: counted.length === 0 ? null : Math.min(...counted.map(({ scrapedMs }) => scrapedMs)),
    carried: edge === undefined ? null : (usage.edges[edge] ?? null),
    endedLater: index.endedLater.get(key) ?? null,
    ends: ends.map((run) => {
      const place = edges.ofEnds.get(run.id);
      return { run, lost: place === undefined ? null : (usage.edges[place] ?? null) };
    }),
    finds: [
      ...found.map((run) => {
        const place = edges.ofFinds.get(run.id);
        return { run, lost: place === undefined ? null : (usage.edges[place] ?? null) };
      }),
      ...(unread === null ? [] : [{ run: unread, lost: hour }]),
    ],
    counted:
      counted.length === 0
        ? null
        : {
            promptTokens: sum(counted, ({ promptTokens }) => promptTokens),
            completionTokens: sum(counted, ({ generationTokens }) => generationTokens),
            requests: sum(counted, ({ requests }) => requests),
          },
    expected: {
      promptTokens: (hour?.promptTokens ?? 0) + sum(own, ({ promptTokens }) => promptTokens),
      completionTokens: (hour?.outputTokens ?? 0) + sum(own, ({ completionTokens }) => completionTokens),
    },
    ledger: index.ledger.get(key) ?? [],
  };
}

/**
 * Returns the run found after an hour in which no counters of the model's engines were read: tokens of the hour's
 * requests were counted before its first reading.
 */
function foundAfter(runs: readonly ReplicaRun[], at: number): ReplicaRun | null {
  const endMs = at + hourMs;
  const isRead = runs.some(({ startedMs, endedMs }) => startedMs < endMs && (endedMs === null || endedMs >= at));
  return isRead ? null : (runs.find(({ isFound, startedMs }) => isFound && startedMs >= endMs) ?? null);
}

function isEmpty({ usage, counted, expected, ledger, ends }: Hour): boolean {
  const hasTokens = [counted, expected].some((one) => one !== null && one.promptTokens + one.completionTokens > 0);
  return usage === null && ledger.length === 0 && ends.length === 0 && !hasTokens;
}

interface Verdict {
  readonly known: Known;
  readonly isCounted: boolean;
  readonly explanations: ReconciledHour['explanations'];
}

function judge(hour: Hour, unexplained: ReconciledHour['unexplained'], verdict: Verdict): ReconciledHour {
  const { known, isCounted, explanations } = verdict;
  const { model, hourMs: at, counted, expected, ledger } = hour;
  const ledgerDifference = ledger.reduce((sum, one) => sum + one.ledgerPicoUsd - one.recordsPicoUsd, 0n);
  const usage = usageOf(hour.usage);
  const difference = { picoUsd: ledgerDifference, ...(isCounted ? less(counted ?? noTokens, expected) : noTokens) };
  const problem = problemOf(hour, unexplained);
  const differs = difference.promptTokens !== 0 || difference.completionTokens !== 0;
  return {
    model,
    hourMs: at,
    state: problem !== null ? 'unexplained' : differs ? 'explained' : 'balanced',
    isOpen: at + hourMs > known.present.nowMs,
    ledgerPicoUsd: usage.costPicoUsd + ledgerDifference,
    usage,
    sums: sumsOf(hour.usage),
    expected,
    counted,
    difference,
    unexplained,
    problem,
    explanations,
  };
}

const noTokens: ReconciledHour['expected'] = { promptTokens: 0, completionTokens: 0 };

function less(a: ReconciledHour['expected'], b: ReconciledHour['expected']): ReconciledHour['expected'] {
  return {
    promptTokens: a.promptTokens - b.promptTokens,
    completionTokens: a.completionTokens - b.completionTokens,
  };
}

function usageOf(usage: UsageHour | null): ReconciledHour['usage'] {
  if (usage === null) return { requests: 0, cacheHits: 0, costPicoUsd: 0n, ...noTokens };
  const { requests, cacheHits, costPicoUsd, inputTokens, outputTokens } = usage;
  return { requests, cacheHits, costPicoUsd, promptTokens: inputTokens, completionTokens: outputTokens };
}

function sumsOf(usage: UsageHour | null): ReconciledHour['sums'] {
  if (usage === null || usage.sums === null) return { requests: 0, costPicoUsd: 0n, ...noTokens };
  const { requests, costPicoUsd, inputTokens, outputTokens } = usage.sums;
  return { requests, costPicoUsd, promptTokens: inputTokens, completionTokens: outputTokens };
}

function problemOf({ usage, ledger }: Hour, unexplained: ReconciledHour['unexplained']): string | null {
  const problems: string[] = [];
  if (ledger.length > 0) problems.push(`ledger entries that differ from their records: ${ledger.length}`);
  if (usage !== null && sumsDiffer(usage)) problems.push('the sums of the hour differ from its records');
  const { promptTokens, completionTokens } = unexplained;
  if (promptTokens !== 0) problems.push(`${tokensText(promptTokens, 'prompt')} than the records`);
  if (completionTokens !== 0) problems.push(`${tokensText(completionTokens, 'completion')} than the records`);
  return problems.length === 0 ? null : problems.join('; ');
}

function tokensText(tokens: number, kind: string): string {
  return `the engines counted ${Math.abs(tokens)} ${kind} tokens ${tokens > 0 ? 'more' : 'fewer'}`;
}

function sumsDiffer({ requests, inputTokens, outputTokens, costPicoUsd, sums }: UsageHour): boolean {
  if (sums === null) return requests > 0;
  return (
    sums.requests !== requests ||
    sums.inputTokens !== inputTokens ||
    sums.outputTokens !== outputTokens ||
    sums.costPicoUsd !== costPicoUsd
  );
}

/** Returns hours for ledger entries whose records no longer show the model. */
function lostHours(ledger: readonly LedgerDifference[], { present }: Known): readonly ReconciledHour[] {
  const lost = Map.groupBy(
    ledger.filter(({ model }) => model === null),
    (one) => one.hourMs,
  );
  return [...lost].map(([at, entries]) => {
    const recordsPicoUsd = entries.reduce((sum, one) => sum + one.recordsPicoUsd, 0n);
    const ledgerPicoUsd = entries.reduce((sum, one) => sum + one.ledgerPicoUsd, 0n);
    const requests = entries.reduce((sum, one) => sum + one.recordsCount, 0);
    return {
      model: null,
      hourMs: at,
      state: 'unexplained' as const,
      isOpen: at + hourMs > present.nowMs,
      ledgerPicoUsd,
      usage: { ...noTokens, requests, cacheHits: 0, costPicoUsd: recordsPicoUsd },
      sums: { ...noTokens, requests: 0, costPicoUsd: 0n },
      expected: noTokens,
      counted: null,
      difference: { ...noTokens, picoUsd: ledgerPicoUsd - recordsPicoUsd },
      unexplained: noTokens,
      problem: `ledger entries that differ from their records: ${entries.length}`,
      explanations: [],
    };
  });
}
