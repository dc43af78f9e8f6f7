import { type AllocationOnFile, spanText } from '#core/costs/costs.ts';

/**
 * The allocation to which an event belongs. Events without a generation are accepted in the order of their moments, and
 * each may be repeated with its own moment or without one. An event before recorded ones could belong to several
 * allocations, and is rejected instead of guessed. A release that comes before its allocation waits for it.
 */
export type Choice =
  /** The event is recorded under these generations. */
  | { readonly kind: 'write'; readonly generations: readonly number[] }
  /** The event changes nothing; the recorded one has this generation. */
  | { readonly kind: 'repeated'; readonly generation: number }
  | { readonly kind: 'refused'; readonly message: string };

/** A new event of a node. */
export interface EventToChoose {
  readonly kind: 'allocate' | 'release';
  readonly generation: number | null;
  readonly moment: EventMoment;
}

export interface EventMoment {
  /** Milliseconds since the Unix epoch. */
  readonly atMs: number;
  /** True if the caller gave the moment; otherwise it is now. */
  readonly isExplicit: boolean;
}

const write = (...generations: readonly number[]): Choice => ({ kind: 'write', generations });
const repeated = (generation: number): Choice => ({ kind: 'repeated', generation });

const refused: Choice = {
  kind: 'refused',
  message:
    'This node has later events. Set "generation" to the number of the allocation (starting at 1) that this event belongs to.',
};

const nextGeneration = (known: readonly AllocationOnFile[]): number =>
  Math.max(0, ...known.map(({ generation }) => generation)) + 1;

/** True if the moment is not before any recorded event, except waiting releases. */
const isAfterAll = (known: readonly AllocationOnFile[], atMs: number): boolean =>
  known.every(
    ({ allocatedMs, releasedMs }) => allocatedMs === null || (allocatedMs <= atMs && (releasedMs ?? 0) <= atMs),
  );

const holdsAt = ({ allocatedMs, releasedMs }: AllocationOnFile, atMs: number): boolean =>
  allocatedMs !== null && allocatedMs <= atMs && (releasedMs === null || releasedMs > atMs);

/** Another moment than the recorded one is no repetition: one of the two is wrong. */
function refuseOtherMoment(onFile: AllocationOnFile): Choice {
  const { generation } = onFile;
  const message = `Allocation ${generation} of this node is recorded ${spanText(onFile)}. If this is wrong, a platform administrator can amend or void it; otherwise repeat the event with its recorded time.`;
  return { kind: 'refused', message };
}

/** @param all allocations of the node on file, with voided ones */
export function chooseAllocation(
  all: readonly AllocationOnFile[],
  { kind, generation, moment }: EventToChoose,
): Choice {
  if (generation !== null) return chooseByGeneration(all, generation, kind, moment);
  const known = all.filter(({ isVoided }) => !isVoided);
  const next = nextGeneration(all);
  return kind === 'allocate' ? chooseForAllocation(known, next, moment) : chooseForRelease(known, next, moment);
}

function chooseByGeneration(
  all: readonly AllocationOnFile[],
  generation: number,
  kind: EventToChoose['kind'],
  { atMs, isExplicit }: EventMoment,
): Choice {
  const onFile = all.find((one) => one.generation === generation);
  if (onFile === undefined) return write(generation);
  if (onFile.isVoided) {
    const message = `Allocation ${generation} of this node was voided. Use another generation.`;
    return { kind: 'refused', message };
  }
  const isEstimate = kind === 'release' && onFile.releaseEstimated;
  const recordedMs = kind === 'allocate' ? onFile.allocatedMs : onFile.releasedMs;
  if (recordedMs === null || isEstimate) return write(generation);
  return recordedMs === atMs || !isExplicit ? repeated(generation) : refuseOtherMoment(onFile);
}

function chooseForAllocation(
  known: readonly AllocationOnFile[],
  next: number,
  { atMs, isExplicit }: EventMoment,
): Choice {
  const same = known.find(({ allocatedMs }) => allocatedMs === atMs);
  if (same !== undefined) return repeated(same.generation);
  const held = known.find((one) => holdsAt(one, atMs));
  if (held !== undefined) return isExplicit ? refuseOtherMoment(held) : repeated(held.generation);
  if (!isAfterAll(known, atMs)) return refused;
  const waiting = known
    .filter(({ allocatedMs, releasedMs }) => allocatedMs === null && (releasedMs ?? 0) > atMs)
    .toSorted((a, b) => (a.releasedMs ?? 0) - (b.releasedMs ?? 0));
  return write(waiting[0]?.generation ?? next);
}

/** Chooses for a release, which ends all open allocations of the node at its moment. */
function chooseForRelease(known: readonly AllocationOnFile[], next: number, { atMs, isExplicit }: EventMoment): Choice {
  const held = known.filter((one) => one.releasedMs === null && holdsAt(one, atMs));
  if (held.length > 0) return write(...held.map(({ generation }) => generation));
  const same = known.find(({ releasedMs, releaseEstimated }) => releasedMs === atMs && !releaseEstimated);
  if (same !== undefined) return repeated(same.generation);
  const allocated = known.filter(({ allocatedMs }) => allocatedMs !== null && allocatedMs <= atMs);
  const last = allocated.toSorted((a, b) => (a.allocatedMs ?? 0) - (b.allocatedMs ?? 0)).at(-1);
  // A reported release replaces one that was inferred from silence, whether it is earlier or later.
  if (last?.releaseEstimated === true) return write(last.generation);
  const over = known.find((one) => holdsAt(one, atMs));
  if (over !== undefined) return isExplicit ? refuseOtherMoment(over) : repeated(over.generation);
  if (!isAfterAll(known, atMs)) return refused;
  const latest = last ?? known.at(-1);
  return latest === undefined || isExplicit ? write(next) : repeated(latest.generation);
}
