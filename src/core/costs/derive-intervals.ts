/** What is known of one allocation of a node. Milliseconds since the Unix epoch. */
export interface ToldAllocation {
  readonly generation: number;
  readonly allocatedMs: number;
  /** Null while the node is held. */
  readonly releasedMs: number | null;
  readonly releaseEstimated: boolean;
  /** To whom its cluster belonged when it was told; counts where no move says otherwise. */
  readonly organization: OrganizationRef;
}

/** An organization by its id and by its name of that time. */
export interface OrganizationRef {
  readonly id: string;
  readonly name: string;
}

/** From `movedMs` on a cluster belongs to another organization. */
export interface ClusterMove {
  readonly movedMs: number;
  readonly from: OrganizationRef;
  readonly to: OrganizationRef;
}

/** Time that counts: [startedMs, endedMs), never empty. */
export interface DerivedInterval {
  readonly generation: number;
  /** From 0; a move of the cluster begins the next. */
  readonly part: number;
  readonly organization: OrganizationRef;
  readonly startedMs: number;
  readonly endedMs: number | null;
  readonly estimated: boolean;
}

/** Later than every moment. */
const never = Number.POSITIVE_INFINITY;

/**
 * The intervals of one node: a function of what was told of it, whatever order it came in. Every moment at which any
 * allocation held the node counts once, for the one that was allocated first. One that ends before it begins counts
 * nothing.
 * @param allocations in the order of `allocatedMs`, then of generation
 * @param movesOf moves of the cluster of an allocation, in their order
 */
export function deriveIntervals<A extends ToldAllocation>(
  allocations: readonly A[],
  movesOf: (allocation: A) => readonly ClusterMove[],
): DerivedInterval[] {
  let coveredMs = Number.NEGATIVE_INFINITY;
  const intervals: DerivedInterval[] = [];
  for (const allocation of allocations) {
    const startedMs = Math.max(allocation.allocatedMs, coveredMs);
    const endedMs = allocation.releasedMs ?? never;
    if (endedMs > startedMs) {
      intervals.push(...cutAtMoves(allocation, { startedMs, endedMs }, movesOf(allocation)));
      coveredMs = endedMs;
    }
  }
  return intervals;
}

function cutAtMoves(
  { generation, organization, releaseEstimated }: ToldAllocation,
  span: { readonly startedMs: number; readonly endedMs: number },
  moves: readonly ClusterMove[],
): DerivedInterval[] {
  const within = moves.filter(({ movedMs }) => movedMs > span.startedMs && movedMs < span.endedMs);
  const borders = [span.startedMs, ...within.map(({ movedMs }) => movedMs), span.endedMs];
  return borders.slice(0, -1).map((startedMs, part) => {
    const endedMs = borders[part + 1] ?? never;
    const isLast = part === within.length;
    return {
      generation,
      part,
      organization: ownerAt(moves, startedMs) ?? organization,
      startedMs,
      endedMs: endedMs === never ? null : endedMs,
      estimated: isLast && endedMs !== never && releaseEstimated,
    };
  });
}

/** Null where no move tells. */
function ownerAt(moves: readonly ClusterMove[], momentMs: number): OrganizationRef | null {
  const last = moves.findLast(({ movedMs }) => movedMs <= momentMs);
  return last?.to ?? moves[0]?.from ?? null;
}
