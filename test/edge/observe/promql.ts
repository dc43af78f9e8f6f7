/** Names in a query of PromQL: metrics, and labels. */
export interface QueryNames {
  readonly metrics: readonly string[];
  readonly labels: readonly string[];
}

const identifier = /[a-zA-Z_:][\w:]*/g;
/** Words that stand between operands, and are no metrics. */
const words = new Set(['and', 'or', 'unless', 'atan2', 'bool', 'offset', 'start', 'end', 'inf', 'nan']);
/** Before a list of labels in round brackets. */
const labelLists = /\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)/g;

const namesIn = (text: string): string[] => [...text.matchAll(identifier)].map(([name]) => name);

/** Reads the names of a query; Grafana's variables may stand in strings and ranges. */
export function readQuery(query: string): QueryNames {
  const labels: string[] = [];
  const take = (text: string): string => {
    labels.push(...namesIn(text));
    return ' ';
  };
  const operands = query
    .replaceAll(/"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'/g, '""')
    .replaceAll(/\{([^}]*)\}/g, (_all, matchers: string) => take(matchers))
    .replaceAll(/\[[^\]]*\]/g, ' ')
    .replaceAll(labelLists, (_all, list: string) => take(list));
  const metrics = [...operands.matchAll(/(?<![\w.$:])[a-zA-Z_:][\w:]*(\s*\()?/g)].flatMap(([whole, called]) => {
    const isMetric = called === undefined && !words.has(whole.toLowerCase());
    // Aggregations may have their labels before their operand.
    return isMetric && !aggregations.has(whole) ? [whole] : [];
  });
  return { metrics: [...new Set(metrics)], labels: [...new Set(labels)] };
}

const aggregations = new Set('sum min max avg group stddev stdvar count count_values bottomk topk quantile'.split(' '));
