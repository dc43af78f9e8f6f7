import type { Metrics } from '#base/metrics.ts';
import type { Metering } from '#core/metering/metering.ts';

const recordBounds = [1, 2, 5, 10, 20, 50, 100, 200, 500];
/** Seconds. */
const commitBounds = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];

/** Called after every group commit. */
export type CommitListener = (records: number, durationMs: number) => void;

/** The size and duration of group commits. @returns to be called after each */
export function createCommitMetrics(metrics: Metrics): CommitListener {
  const records = metrics
    .histogram({ name: 'headgate_books_commit_records', help: 'Usage records of one group commit' }, recordBounds)
    .of();
  const durations = metrics
    .histogram(
      { name: 'headgate_books_commit_duration_seconds', help: 'How long group commits took, repeats included' },
      commitBounds,
    )
    .of();
  return (count, durationMs) => {
    records.observe(count);
    durations.observe(durationMs / 1000);
  };
}

/** Usage records that are not written yet, and whether they can be. */
export function addBookGauges(
  metrics: Metrics,
  metering: Pick<Metering, 'pending' | 'oldestPendingMs' | 'healthy'>,
): void {
  metrics.gauge({ name: 'headgate_books_pending_records', help: 'Usage records that are not durable yet' }, (set) =>
    set(metering.pending),
  );
  metrics.gauge(
    { name: 'headgate_books_lag_seconds', help: 'How long the oldest usage record has waited to be durable' },
    (set) => set(metering.oldestPendingMs / 1000),
  );
  metrics.gauge({ name: 'headgate_books_up', help: '1 while the books can be written' }, (set) =>
    set(metering.healthy ? 1 : 0),
  );
}
