import type { Db } from '#base/database/database.ts';
import { formatId } from '#base/id.ts';
import { type Amount, type Hours, type RoundedPart, roundParts, Totals } from './line-items.ts';
import type { Pricing } from './pricing.ts';
import { readRatedUsage, type SnapshotUsage, type UsageView, viewUsage } from './rated-usage.ts';
import { type CostWarning, type ReportOptions, Warnings } from './report.ts';
import type { Split } from './split-usage.ts';
import { readStackNodes, type StackSpan, stacksOfNodes } from './stack-spans.ts';
import { type Step, stepsMax, stepStarts, type Window } from './window.ts';

/** Groups of a series. `stack` groups by the stacks that were applied on a node at the time. */
export type GroupBy =
  | { readonly by: 'organization' | 'cluster' | 'node' | 'hardware_profile' | 'stack' }
  | { readonly by: 'label'; readonly key: string };

export interface SeriesRequest {
  readonly window: Window;
  /** Null has one step: the window. */
  readonly step: Step | null;
  /** Null does not group. */
  readonly groupBy: GroupBy | null;
  /** UUIDs of the organizations that the caller may see; null for all. */
  readonly organizationIds: readonly string[] | null;
  readonly asOfMs?: number | undefined;
}

/** Hours and costs that add up: those of groups to those of their step, those of steps to those of the series. */
export interface Costing extends Hours {
  readonly amounts: readonly Amount[];
}

export interface CostGroup extends Costing {
  /** Id of the organization, cluster or node, the profile, the value of the label, or the stacks; null for none. */
  readonly value: string | null;
  readonly name: string | null;
}

export interface CostStep extends Costing {
  /** [fromMs, toMs), milliseconds since the Unix epoch. */
  readonly fromMs: number;
  readonly toMs: number;
  /** Groups with usage in this step, by name. Empty if the series is not grouped. */
  readonly groups: readonly CostGroup[];
}

export interface CostSeries {
  readonly window: Window;
  readonly asOfMs: number;
  readonly totals: Costing;
  /** All groups with usage, by name. Empty if the series is not grouped. */
  readonly groups: readonly CostGroup[];
  /** All steps of the window, also those without usage. */
  readonly steps: readonly CostStep[];
  readonly warnings: readonly CostWarning[];
}

export type SeriesResult =
  | { readonly kind: 'series'; readonly series: CostSeries }
  | { readonly kind: 'too_many_steps'; readonly stepsMax: number }
  | { readonly kind: 'too_many_parts'; readonly partsMax: number };

/** Reads the spans of time in which stacks were applied. */
export type ReadStackSpans = () => Promise<readonly StackSpan[]>;

export interface SeriesOptions extends ReportOptions {
  readonly db: Db;
  readonly readStackSpans: ReadStackSpans;
}

/**
 * Reads costs over time and by group. Lines are those of the report, each is rounded once, and `roundParts` divides it
 * between steps and groups: whatever the division, the parts add up to the report.
 */
export async function readSeries(options: SeriesOptions, request: SeriesRequest): Promise<SeriesResult> {
  const { db, defaultCurrency, linesMax, readStackSpans } = options;
  const { window, step, groupBy, organizationIds, asOfMs } = request;
  const starts = step === null ? [window.fromMs] : stepStarts(window, step);
  if (starts === null) return { kind: 'too_many_steps', stepsMax };
  const stacks = groupBy?.by === 'stack' ? await readStackSpans() : [];
  return viewUsage(db, asOfMs ?? null, async (view): Promise<SeriesResult> => {
    const split = await splitOf(view, groupBy, stacks);
    const draft = new SeriesDraft(window, starts, groupBy);
    const usage = { window, organizationIds, source: null, defaultCurrency, inCurrency: null, split, cuts: starts };
    await readRatedUsage(view, usage, (used) => {
      draft.add(used);
      return draft.parts <= linesMax;
    });
    if (draft.parts > linesMax) return { kind: 'too_many_parts', partsMax: linesMax };
    if (groupBy?.by === 'node') draft.names = await readNodeNames(view, draft.values());
    return { kind: 'series', series: draft.finish(view.asOfMs) };
  });
}

async function splitOf(view: UsageView, groupBy: GroupBy | null, stacks: readonly StackSpan[]): Promise<Split | null> {
  switch (groupBy?.by) {
    case 'node':
      return { by: 'node' };
    case 'label':
      return { by: 'label', key: groupBy.key };
    case 'stack': {
      const clusterIds = [...new Set(stacks.map(({ clusterId }) => clusterId))];
      return { by: 'spans', spans: stacksOfNodes(await readStackNodes(view, clusterIds), stacks) };
    }
    default:
      return null;
  }
}

async function readNodeNames({ sql }: UsageView, ids: readonly string[]): Promise<Map<string, string>> {
  const rows = await sql<{ node_id: string; node_name: string | null }[]>`
    select distinct on (a.node_id) a.node_id, a.node_name
    from json_array_elements_text(${JSON.stringify(ids)}::text::json) as t(id)
    join usage_allocations a on a.node_id = t.id and a.node_name is not null
    order by a.node_id, a.generation desc`;
  return new Map(rows.map((row) => [row.node_id, row.node_name ?? row.node_id]));
}

/** The part of a line in one step and one group. */
interface PartDraft {
  readonly step: number;
  readonly value: string | null;
  nodeMs: bigint;
  gpuShareMs: bigint;
}

interface LineDraft {
  readonly pricing: Pricing;
  readonly hardwareProfile: string;
  readonly organizationId: string;
  readonly parts: Map<string, PartDraft>;
}

class SeriesDraft {
  /** Number of parts so far. */
  parts = 0;
  /** Latest names of values. */
  names = new Map<string, string>();
  readonly #namedMs = new Map<string, number>();
  readonly #window: Window;
  readonly #starts: readonly number[];
  readonly #groupBy: GroupBy | null;
  readonly #lines = new Map<string, LineDraft>();

  constructor(window: Window, starts: readonly number[], groupBy: GroupBy | null) {
    this.#window = window;
    this.#starts = starts;
    this.#groupBy = groupBy;
  }

  add(usage: SnapshotUsage): void {
    const { organizationId, source, clusterId, hardwareProfile } = usage;
    const value = this.#valueOf(usage);
    let step = 0;
    // Pieces are in the order of their time.
    for (const { pricing, startedMs, nodeMs, gpuShareMs } of usage.pieces) {
      const momentMs = this.#window.fromMs + startedMs;
      while ((this.#starts[step + 1] ?? Number.POSITIVE_INFINITY) <= momentMs) step += 1;
      const key = JSON.stringify([organizationId, source, clusterId, hardwareProfile, pricing.key]);
      const line: LineDraft = this.#lines.get(key) ?? { pricing, hardwareProfile, organizationId, parts: new Map() };
      this.#lines.set(key, line);
      const partKey = JSON.stringify([step, value]);
      const part = line.parts.get(partKey);
      if (part === undefined) {
        line.parts.set(partKey, { step, value, nodeMs, gpuShareMs });
        this.parts += 1;
      } else {
        part.nodeMs += nodeMs;
        part.gpuShareMs += gpuShareMs;
      }
    }
  }

  #valueOf(usage: SnapshotUsage): string | null {
    switch (this.#groupBy?.by) {
      case 'organization':
        return this.#named(formatId('org', usage.organizationId), usage.organizationName, usage.lastStartMs);
      case 'cluster':
        return this.#named(usage.clusterId, usage.clusterName, usage.lastStartMs);
      case 'hardware_profile':
        return usage.hardwareProfile;
      default:
        return usage.split;
    }
  }

  #named(value: string, name: string, atMs: number): string {
    if (atMs >= (this.#namedMs.get(value) ?? Number.NEGATIVE_INFINITY)) {
      this.#namedMs.set(value, atMs);
      this.names.set(value, name);
    }
    return value;
  }

  values(): readonly string[] {
    const all = [...this.#lines.values()].flatMap(({ parts }) => [...parts.values()].map(({ value }) => value));
    return [...new Set(all)].filter((value) => value !== null);
  }

  finish(asOfMs: number): CostSeries {
    const [totals, groups, warnings] = [new Totals(), new Groups(), new Warnings()];
    const stepTotals = this.#starts.map(() => ({ totals: new Totals(), groups: new Groups() }));
    // Sorted by time and value: the division of a line does not depend on the order in which usage was read.
    for (const line of this.#lines.values()) {
      warnings.add(line, line.organizationId);
      const parts = [...line.parts.values()].toSorted(byStepAndValue);
      for (const [index, rounded] of roundParts(line.pricing, parts).entries()) {
        const { step = 0, value = null } = parts[index] ?? {};
        totals.add(rounded);
        groups.add(value, rounded);
        stepTotals[step]?.totals.add(rounded);
        stepTotals[step]?.groups.add(value, rounded);
      }
    }
    const isGrouped = this.#groupBy !== null;
    const listed = (of: Groups): CostGroup[] => (isGrouped ? of.list(this.names) : []);
    return {
      window: this.#window,
      asOfMs,
      totals: costingOf(totals),
      groups: listed(groups),
      steps: stepTotals.map((one, index) => ({
        fromMs: this.#starts[index] ?? 0,
        toMs: this.#starts[index + 1] ?? this.#window.toMs,
        ...costingOf(one.totals),
        groups: listed(one.groups),
      })),
      warnings: warnings.list(),
    };
  }
}

function byStepAndValue(a: PartDraft, b: PartDraft): number {
  if (a.step !== b.step) return a.step - b.step;
  return (a.value ?? '') < (b.value ?? '') ? -1 : 1;
}

const costingOf = (totals: Totals): Costing => ({ ...totals.hours(), amounts: totals.amounts() });

class Groups {
  readonly #totals = new Map<string | null, Totals>();

  add(value: string | null, part: RoundedPart): void {
    const totals = this.#totals.get(value) ?? new Totals();
    this.#totals.set(value, totals);
    totals.add(part);
  }

  /** Returns groups by name; the group without a value last. */
  list(names: ReadonlyMap<string, string>): CostGroup[] {
    const groups = [...this.#totals].map(([value, totals]) => {
      const name = value === null ? null : (names.get(value) ?? value);
      return { value, name, ...costingOf(totals) };
    });
    return groups.toSorted((a, b) => {
      if (a.name === null || b.name === null) return a.name === b.name ? 0 : a.name === null ? 1 : -1;
      if (a.name !== b.name) return a.name < b.name ? -1 : 1;
      return (a.value ?? '') < (b.value ?? '') ? -1 : 1;
    });
  }
}
