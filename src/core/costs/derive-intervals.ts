/** The reported times of one allocation of a node. Milliseconds since the Unix epoch. */
export interface ReportedAllocation {
  readonly generation: number;
  readonly allocatedMs: number;
  /** Null while the node is allocated. */
  readonly releasedMs: number | null;
  readonly releaseEstimated: boolean;
  /** Owner of the cluster when the allocation was reported; used where no move says otherwise. */
  readonly organization: OrganizationRef;
}

/** An organization by its id and its name at that time. */
export interface OrganizationRef {
  readonly id: string;
  readonly name: string;
}

/** A move of a cluster: from `movedMs` on it belongs to another organization. */
export interface ClusterMove {
  readonly movedMs: number;
  readonly from: OrganizationRef;
  readonly to: OrganizationRef;
}

/** Metered time: [startedMs, endedMs), never empty. */
export interface DerivedInterval {
  readonly generation: number;
  /** From 0; each move of the cluster starts the next part. */
  readonly part: number;
  readonly organization: OrganizationRef;
  readonly startedMs: number;
  readonly endedMs: number | null;
  readonly estimated: boolean;
}

/** Later than every moment. */
const never = Number.POSITIVE_INFINITY;

/**
 * Derives the intervals of one node from its reported allocations, independent of the order of reports. Each moment
 * counts once, for the allocation that came first. An allocation that ends before it starts counts nothing.
 * @param allocations sorted by `allocatedMs`, then by generation
 * @param movesOf returns moves of the cluster of an allocation, in order
 */
export function deriveIntervals<A extends ReportedAllocation>(
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
  { generation, organization, releaseEstimated }: ReportedAllocation,
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

/** Null if there are no moves. */
function ownerAt(moves: readonly ClusterMove[], momentMs: number): OrganizationRef | null {
  const last = moves.findLast(({ movedMs }) => movedMs <= momentMs);
  return last?.to ?? moves[0]?.from ?? null;
}
