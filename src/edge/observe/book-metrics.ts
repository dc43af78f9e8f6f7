import type { Metrics } from '#base/metrics/metrics.ts';
import type { Backups } from '#core/backups/backups.ts';
import type { Metering } from '#core/metering/metering.ts';

const recordBounds = [1, 2, 5, 10, 20, 50, 100, 200, 500];
/** Seconds. */
const commitBounds = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];

/** Called after each group commit. */
export type CommitListener = (records: number, durationMs: number) => void;

/** Measures size and duration of group commits. @returns the function to call after each */
export function createCommitMetrics(metrics: Metrics): CommitListener {
  const records = metrics
    .histogram(
      { name: 'headgate_books_commit_records', help: 'Usage records written together in one commit' },
      recordBounds,
    )
    .of();
  const durations = metrics
    .histogram(
      {
        name: 'headgate_books_commit_duration_seconds',
        help: 'Duration of commits of usage records, including repeated attempts',
      },
      commitBounds,
    )
    .of();
  return (count, durationMs) => {
    records.observe(count);
    durations.observe(durationMs / 1000);
  };
}

/** Adds gauges for usage records that are not written yet, and for whether they can be written. */
export function addBookGauges(
  metrics: Metrics,
  metering: Pick<Metering, 'pending' | 'oldestPendingMs' | 'writable' | 'spooled' | 'spooledBytes' | 'quarantined'>,
): void {
  metrics.gauge(
    {
      name: 'headgate_books_pending_records',
      help: 'Usage records that are only in memory, neither in PostgreSQL nor in the spool',
    },
    (set) => set(metering.pending),
  );
  metrics.gauge(
    { name: 'headgate_books_lag_seconds', help: 'Age of the oldest usage record that is only in memory' },
    (set) => set(metering.oldestPendingMs / 1000),
  );
  metrics.gauge(
    { name: 'headgate_books_up', help: '1 while usage records can be written to PostgreSQL or to the spool, else 0' },
    (set) => set(metering.writable ? 1 : 0),
  );
  metrics.gauge(
    {
      name: 'headgate_books_spooled_records',
      help: 'Usage records in the spool of this gateway, which PostgreSQL does not have yet',
    },
    (set) => set(metering.spooled),
  );
  metrics.gauge({ name: 'headgate_books_spool_bytes', help: 'Size of the spool of this gateway on disk' }, (set) =>
    set(metering.spooledBytes),
  );
  metrics.gauge(
    {
      name: 'headgate_books_quarantined_records',
      help: 'Usage records that PostgreSQL rejected since this gateway started',
    },
    (set) => set(metering.quarantined),
  );
}

export function addBackupGauge(metrics: Metrics, backups: Pick<Backups, 'ageMs'>): void {
  const help = 'Age of the newest good backup; without a backup, age of the database';
  metrics.gauge({ name: 'headgate_backup_age_seconds', help }, (set) => {
    const ageMs = backups.ageMs();
    if (ageMs !== null) set(ageMs / 1000);
  });
}
