import { pathWith, type Visit } from '#edge/portal/visit.ts';
import type { ClusterSummaryAnswer, PageAnswer } from './answers.ts';

/** Clusters to choose from. */

const pageSize = 100;
const pagesMax = 10;

/**
 * As many as one list of a form can hold, 1000, in the API's order.
 * @param status `all` for those that were deleted too
 */
export async function readClusters({ get }: Visit, status?: 'all'): Promise<readonly ClusterSummaryAnswer[]> {
  const read = (number: number): Promise<PageAnswer<ClusterSummaryAnswer>> =>
    get(pathWith('/v1/clusters', { status, page: number, limit: pageSize }));
  const first = await read(1);
  const others = Math.min(first.pagination.pages, pagesMax) - 1;
  const rest = await Promise.all(Array.from({ length: Math.max(0, others) }, (_, index) => read(index + 2)));
  return [first, ...rest].flatMap(({ data }) => data);
}
