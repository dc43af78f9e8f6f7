import { cleanLine, type CommandContext, FailedError, pathOf, readList } from '#edge/cli/shell/shell.ts';

export const summary = async () => (await import('#edge/contract/clusters.ts')).clusterSummarySchema;

export const clustersPath = '/v1/clusters';
export const clusterPath = (id: string | undefined): string => pathOf(clustersPath, id);

/** Returns the id of the cluster with this id, or with this name if it is active. @throws FailedError */
export async function findClusterId(context: CommandContext, text: string): Promise<string> {
  if (text.startsWith('cluster_')) return text;
  const query = new URLSearchParams();
  const all = await readList(context, { path: clustersPath, item: summary, query });
  const [first, ...others] = all.filter(({ name }) => name === text);
  if (first === undefined)
    throw new FailedError(`there is no cluster ${text}; "headgate clusters ls" lists the clusters`);
  if (others.length === 0) return first.id;
  const ids = [first, ...others].map(({ id, organization_id: organization }) => `${id} of ${organization}`);
  throw new FailedError(`several clusters are named ${text}; use an id: ${ids.join(', ')}`);
}

/** Most clusters that one sentence names. */
const namedMax = 5;

/**
 * Returns a sentence that explains empty costs by active clusters whose nodes are not allocated; null if all nodes are.
 * @param query as for the list of clusters
 */
export async function sayUnallocated(context: CommandContext, query: URLSearchParams): Promise<string | null> {
  const all = await readList(context, { path: clustersPath, item: summary, query });
  const waiting = all.filter((one) => one.nodes_allocated < one.nodes_total);
  if (waiting.length === 0) return null;
  const named = waiting.slice(0, namedMax).map((one) => {
    return `${one.nodes_total - one.nodes_allocated} of ${one.nodes_total} nodes of ${cleanLine(one.name)}`;
  });
  const others = waiting.length - named.length;
  const list = [...named, ...(others === 0 ? [] : [`nodes of ${others} more clusters`])].join(', ');
  return (
    `not allocated: ${list}; metering of a node starts when a platform administrator allocates it: ` +
    'headgate clusters allocate CLUSTER NODE'
  );
}

/** Returns a warning for a node whose hours have no price. */
export const unpricedText = (profile: string): string =>
  `warning: no rate card prices ${cleanLine(profile)}, so the hours of this node are unrated; add one: headgate rate-cards add ${cleanLine(profile)}\n`;
