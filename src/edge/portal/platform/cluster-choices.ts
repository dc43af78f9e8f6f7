import type { ClusterSummaryAnswer } from '#edge/contract/clusters.ts';
import { readPages } from '#edge/portal/frame/frame.ts';
import type { Visit } from '#edge/portal/ui/ui.ts';

/** Reads the clusters to choose from. @param status `all` includes archived clusters */
export const readClusters = (visit: Visit, status?: 'all'): Promise<readonly ClusterSummaryAnswer[]> =>
  readPages(visit, '/v1/clusters', { status });
