/** Labels of a cluster or a node: values by key. */
export type Labels = Readonly<Record<string, string>>;

/** Changes of labels: null removes a label, and labels that are not named stay. */
export type LabelChanges = Readonly<Record<string, string | null>>;

/** Most labels of one cluster or node. */
export const labelsMax = 32;

/** Applies changes. Keys of the result are sorted. */
export function changeLabels(labels: Labels, changes: LabelChanges): Labels {
  const all = Object.entries({ ...labels, ...changes }).filter((entry): entry is [string, string] => entry[1] !== null);
  return Object.fromEntries(all.toSorted(([a], [b]) => (a < b ? -1 : 1)));
}

/** Returns the labels of a node with those of its cluster; the node's own win. */
export const labelsOfNode = (ofCluster: Labels, ofNode: Labels): Labels => changeLabels(ofCluster, ofNode);
