import { collectDefaultMetrics, Registry } from 'prom-client';
import { contentType, familyText, labelsText, sampleText } from './prometheus-text.ts';

export { mergeMetrics } from './prometheus-merge.ts';
export { familyText, labelsText, sampleText } from './prometheus-text.ts';
export { readTraceContext, type TraceContext, traceLines } from './trace-context.ts';

/**
 * Metrics in Prometheus' text format. Counters on the request path are plain numbers, bound to their labels once; texts
 * are created when the metrics are read. prom-client supplies the metrics of the process and of Node.
 */
export interface Metrics {
  /** A number that only grows; its name ends in `_total`. */
  counter(family: MetricFamily): Family<CounterSeries>;
  /** @param bounds upper bounds of the buckets, ascending, without +Inf */
  histogram(family: MetricFamily, bounds: readonly number[]): Family<HistogramSeries>;
  /** `read` is called whenever the metrics are, and sets every series that there is at that moment. */
  gauge(family: MetricFamily, read: (set: SetSeries) => void): void;
  /** All metrics in the format that `contentType` names. */
  text(): Promise<string>;
  readonly contentType: string;
}

export interface MetricFamily {
  readonly name: string;
  readonly help: string;
  /** Labels must not grow with users: no key, no organization, nothing that a client made up. */
  readonly labelNames?: readonly string[];
}

/** Sets one series of a gauge. @param labels values in the order of `labelNames` */
export type SetSeries = (value: number, ...labels: readonly string[]) => void;

export interface Family<Series> {
  /** The series of these values, in the order of `labelNames`; keep it where it is needed often. */
  of(...labels: readonly string[]): Series;
}

export class CounterSeries {
  value = 0;

  add(amount: number): void {
    this.value += amount;
  }
}

export class HistogramSeries {
  /** One more than bounds: the last one is +Inf. Not cumulative. */
  readonly counts: Float64Array;
  sum = 0;
  readonly #bounds: readonly number[];

  constructor(bounds: readonly number[]) {
    this.#bounds = bounds;
    this.counts = new Float64Array(bounds.length + 1);
  }

  observe(value: number): void {
    const bounds = this.#bounds;
    let bucket = 0;
    while (bucket < bounds.length && value > (bounds[bucket] ?? 0)) bucket += 1;
    this.counts[bucket] = (this.counts[bucket] ?? 0) + 1;
    this.sum += value;
  }
}

/** Creates metrics that share nothing with other gateways of the same process. */
export function createMetrics(): Metrics {
  const ofProcess = new Registry();
  collectDefaultMetrics({ register: ofProcess });
  const families: (() => string)[] = [];
  return {
    counter({ name, help, labelNames = [] }) {
      const family = new SeriesFamily(labelNames, () => new CounterSeries());
      const sample = ({ value }: CounterSeries, labels: string): string => sampleText(name, labels, value);
      families.push(() => familyText(name, help, 'counter', family.map(sample)));
      return family;
    },
    histogram({ name, help, labelNames = [] }, bounds) {
      const family = new SeriesFamily(labelNames, () => new HistogramSeries(bounds));
      const les = [...bounds.map(String), '+Inf'].map((bound) => labelsText(['le'], [bound]));
      families.push(() => {
        const samples = family.map((series, labels) => histogramSamples(name, les, series, labels));
        return familyText(name, help, 'histogram', samples.flat());
      });
      return family;
    },
    gauge({ name, help, labelNames = [] }, read) {
      families.push(() => {
        const values = new Map<string, number>();
        read((value, ...labels) => values.set(labelsText(labelNames, labels), value));
        const samples = Array.from(values, ([labels, value]) => sampleText(name, labels, value));
        return familyText(name, help, 'gauge', samples);
      });
    },
    text: async () => [await ofProcess.metrics(), ...families.map((family) => family())].join('\n'),
    contentType,
  };
}

class SeriesFamily<Series> implements Family<Series> {
  readonly #names: readonly string[];
  readonly #make: () => Series;
  /** By the text of their labels. */
  readonly #series = new Map<string, Series>();

  constructor(names: readonly string[], make: () => Series) {
    this.#names = names;
    this.#make = make;
    // A series without labels is there from the beginning: a rate needs a first value.
    if (names.length === 0) this.of();
  }

  of(...values: readonly string[]): Series {
    const labels = labelsText(this.#names, values);
    const series = this.#series.get(labels) ?? this.#make();
    this.#series.set(labels, series);
    return series;
  }

  map<Result>(use: (series: Series, labels: string) => Result): Result[] {
    return Array.from(this.#series, ([labels, series]) => use(series, labels));
  }
}

/** Buckets in the text are cumulative. @param les the label `le` of each bucket */
function histogramSamples(
  name: string,
  les: readonly string[],
  { counts, sum }: HistogramSeries,
  labels: string,
): string[] {
  let count = 0;
  const buckets = les.map((le, index) => {
    count += counts[index] ?? 0;
    return sampleText(`${name}_bucket`, labels === '' ? le : `${labels},${le}`, count);
  });
  return [...buckets, sampleText(`${name}_sum`, labels, sum), sampleText(`${name}_count`, labels, count)];
}
