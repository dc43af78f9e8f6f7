/** The value of one series, by its name and labels as they are written; null where there is none. */
export function seriesValue(text: string, series: string): number | null {
  const line = text.split('\n').find((each) => each.startsWith(`${series} `));
  return line === undefined ? null : Number(line.slice(line.lastIndexOf(' ') + 1));
}

/** Names of metrics as queries name them, those of a histogram with its three endings. */
export function metricNames(text: string): ReadonlySet<string> {
  const families = [...text.matchAll(/^# TYPE (\S+) (\S+)$/gm)];
  return new Set(
    families.flatMap(([, name = '', type]) =>
      type === 'histogram' ? [`${name}_bucket`, `${name}_sum`, `${name}_count`] : [name],
    ),
  );
}

/** Metrics of its engines that a gateway forwards. */
export async function readEngineMetrics(metricsUrl: string | null): Promise<string> {
  const answer = await fetch(new URL('/metrics/engines', metricsUrl ?? 'http://there.is.none'));
  if (answer.status !== 200) throw new Error(`the metrics of the engines were answered with ${answer.status}`);
  return answer.text();
}

/** Everything that a gateway's metrics say now. */
export async function readMetrics(metricsUrl: string | null): Promise<string> {
  const answer = await fetch(new URL('/metrics', metricsUrl ?? 'http://there.is.none'));
  if (answer.status !== 200) throw new Error(`the metrics were answered with ${answer.status}`);
  return answer.text();
}
