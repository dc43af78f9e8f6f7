import {
  collectDefaultMetrics,
  Counter,
  Gauge,
  Histogram,
  Registry,
  type LabelValues,
  type MetricObjectWithValues,
  type MetricValueWithName,
} from 'prom-client';

/**
 * Metrics in Prometheus' text format. What is counted on the request path is a plain number that was bound to its
 * labels once: prom-client puts labels together and looks them up again at every increment, which is dear there, and
 * so it only hears of the sums when they are read.
 */
export interface Metrics {
  /** A number that only grows; its name ends in `_total`. */
  counter(family: MetricFamily): Family<CounterSeries>;
  /** @param bounds upper bounds of the buckets, ascending, without +Inf */
  histogram(family: MetricFamily, bounds: readonly number[]): Family<HistogramSeries>;
  /** `read` is called whenever the metrics are, and sets every series that there is at that moment. */
  gauge(family: MetricFamily, read: (set: SetSeries) => void): void;
  /** Everything there is to tell, in the format that `contentType` names. */
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
  readonly labels: Labels;
  value = 0;

  constructor(labels: Labels) {
    this.labels = labels;
  }

  add(amount: number): void {
    this.value += amount;
  }
}

export class HistogramSeries {
  readonly labels: Labels;
  /** One more than bounds: the last one is +Inf. Not cumulative. */
  readonly counts: Float64Array;
  sum = 0;
  readonly #bounds: readonly number[];

  constructor(labels: Labels, bounds: readonly number[]) {
    this.labels = labels;
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

type Labels = LabelValues<string>;

/** A separate registry: nothing is shared with other gateways of the same process. */
export function createMetrics(): Metrics {
  const registry = new Registry();
  const registers = [registry];
  collectDefaultMetrics({ register: registry });
  return {
    counter({ name, help, labelNames = [] }) {
      const family = createFamily(labelNames, (labels) => new CounterSeries(labels));
      const collect = function (this: Counter): void {
        this.reset();
        for (const { labels, value } of family.all()) this.inc(labels, value);
      };
      new Counter({ name, help, labelNames: [...labelNames], registers, collect });
      return family;
    },
    histogram({ name, help, labelNames = [] }, bounds) {
      const family = createFamily(labelNames, (labels) => new HistogramSeries(labels, bounds));
      const config = { name, help, labelNames: [...labelNames], buckets: [...bounds], registers };
      new SeriesHistogram(config, () => ({ name, help, bounds, series: family.all() }));
      return family;
    },
    gauge({ name, help, labelNames = [] }, read) {
      const collect = function (this: Gauge): void {
        this.reset();
        read((value, ...labels) => this.set(labelsOf(labelNames, labels), value));
      };
      new Gauge({ name, help, labelNames: [...labelNames], registers, collect });
    },
    text: () => registry.metrics(),
    contentType: registry.contentType,
  };
}

interface OwnFamily<Series> extends Family<Series> {
  all(): readonly Series[];
}

function createFamily<Series>(names: readonly string[], make: (labels: Labels) => Series): OwnFamily<Series> {
  const series = new Map<string, Series>();
  // One without labels is there from the beginning: a rate needs a first value.
  const of = (...values: readonly string[]): Series => {
    const key = values.join('\0');
    const found = series.get(key) ?? make(labelsOf(names, values));
    series.set(key, found);
    return found;
  };
  if (names.length === 0) of();
  return { of, all: () => [...series.values()] };
}

function labelsOf(names: readonly string[], values: readonly string[]): Labels {
  return Object.fromEntries(names.map((name, index) => [name, values[index] ?? '']));
}

interface HistogramState {
  readonly name: string;
  readonly help: string;
  readonly bounds: readonly number[];
  readonly series: readonly HistogramSeries[];
}

type HistogramValues = MetricObjectWithValues<MetricValueWithName<string>>;

/** Stands in prom-client's registry and gives it the buckets that were counted here. */
class SeriesHistogram extends Histogram {
  readonly #read: () => HistogramState;

  constructor(config: ConstructorParameters<typeof Histogram>[0], read: () => HistogramState) {
    super(config);
    this.#read = read;
  }

  override get(): Promise<HistogramValues> {
    return Promise.resolve(valuesOf(this.#read()));
  }

  /** The registry asks this one first. */
  getForPromString(): Promise<HistogramValues> {
    return this.get();
  }
}

function valuesOf({ name, help, bounds, series }: HistogramState): HistogramValues {
  const values = series.flatMap(({ labels, counts, sum }) => {
    let count = 0;
    const buckets = [...counts].map((inBucket, index) => {
      count += inBucket;
      const le = bounds[index] ?? '+Inf';
      return { metricName: `${name}_bucket`, labels: { ...labels, le }, value: count };
    });
    return [
      ...buckets,
      { metricName: `${name}_sum`, labels, value: sum },
      { metricName: `${name}_count`, labels, value: count },
    ];
  });
  // What its own histograms give; its types name a field more, and say that the type is a number.
  return { name, help, type: 'histogram', aggregator: 'sum', values } as unknown as HistogramValues;
}
