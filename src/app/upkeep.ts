import { statfs } from 'node:fs/promises';
import type { Clock } from '#base/clock.ts';
import type { Db } from '#base/database/database.ts';
import type { Log } from '#base/log.ts';
import { overdueMs } from '#core/backups/backups.ts';
import type { SharedStore } from './coordination.ts';
import type { Foundation } from './foundation.ts';
import type { Gateway } from './gateway.ts';
import type { Part } from './lifecycle.ts';

/** Watches what fills up or gets lost unnoticed: disk, Redis, backups, platform key, differences of the books. */

/** The latest figures, in bytes unless noted; null where there is nothing to measure, or before the first measure. */
export interface UpkeepFigures {
  readonly dataDisk: Filling | null;
  readonly databaseBytes: number | null;
  /** Age of the newest good backup, milliseconds. */
  readonly backupAgeMs: number | null;
  /** Memory of the Redis node that answered; `size` is its `maxmemory`. */
  readonly redis: Filling | null;
  /** Reason why this gateway cannot encrypt; null where it can. */
  readonly keyTrouble: string | null;
  /** Number of models of the last reconciled hour that differ unexplained; null while another gateway has that job. */
  readonly unexplained: number | null;
}

interface Filling {
  readonly used: number;
  readonly size: number;
}

export interface Upkeep {
  figures(): UpkeepFigures;
  readonly part: Part;
}

export interface UpkeepParts {
  readonly foundation: Pick<Foundation, 'accounts' | 'alerts' | 'backups' | 'secrets'>;
  readonly gateway: Pick<Gateway, 'reconciler'>;
  readonly shared: SharedStore;
  readonly db: Db;
  readonly clock: Clock;
  readonly log: Log;
  readonly dataDir: string;
}

const measureMs = 60_000;
const hourMs = 3_600_000;
/** Used share of a disk or of Redis from which it is reported. */
const nearlyFull = 0.9;

const none: UpkeepFigures = {
  dataDisk: null,
  databaseBytes: null,
  backupAgeMs: null,
  redis: null,
  keyTrouble: null,
  unexplained: null,
};

export function createUpkeep(parts: UpkeepParts): Upkeep {
  const { gateway, clock, foundation, log } = parts;
  let figures = none;
  async function measure(): Promise<void> {
    const [dataDisk, databaseBytes, redis] = await Promise.all([
      readDisk(parts.dataDir),
      readDatabaseBytes(parts.db),
      readRedis(parts.shared),
    ]);
    const [backupAgeMs, keyTrouble] = [foundation.backups.ageMs(), foundation.secrets.trouble()];
    figures = { ...figures, dataDisk, databaseBytes, backupAgeMs, redis, keyTrouble };
    await report(parts, problemsOf(figures));
  }
  /** Reconciles the hour before the last hour: usage of the last hour may still be on its way to the books. */
  async function reconcile(): Promise<void> {
    const toMs = Math.floor(clock.now() / hourMs) * hourMs - hourMs;
    const { unexplained } = await gateway.reconciler.reconcile({ fromMs: toMs - hourMs, toMs });
    figures = { ...figures, unexplained };
    await report(parts, problemsOf(figures));
  }
  const part: Part = {
    name: 'upkeep',
    jobs: [
      { name: 'measure disk, database and Redis', everyMs: measureMs, where: 'every', run: measure },
      {
        name: 'reconcile the hour before the last',
        everyMs: hourMs,
        where: 'one',
        run: reconcile,
        forget: () => void (figures = { ...figures, unexplained: null }),
      },
    ],
    start: () =>
      measure().catch((error: unknown) =>
        log.warn(
          { err: error },
          'the free disk space and the memory of Redis could not be measured at the start; a job retries',
        ),
      ),
  };
  return { figures: () => figures, part };
}

interface Problem {
  readonly problem:
    | 'backup_old'
    | 'disk_nearly_full'
    | 'redis_nearly_full'
    | 'platform_key_missing'
    | 'reconcile_unexplained';
  readonly text: string;
}

const isNearlyFull = (filling: Filling | null): filling is Filling =>
  filling !== null && filling.size > 0 && filling.used >= nearlyFull * filling.size;

const shareText = ({ used, size }: Filling): string =>
  `${Math.floor((used / size) * 100)} % of ${(size / 2 ** 30).toFixed(1)} GiB`;

/** Returns the problems that an operator must act on, in one sentence each. */
export function problemsOf(figures: UpkeepFigures): readonly Problem[] {
  const { dataDisk, backupAgeMs, redis, keyTrouble, unexplained } = figures;
  const problems: Problem[] = [];
  if (backupAgeMs !== null && backupAgeMs > overdueMs) {
    problems.push({
      problem: 'backup_old',
      text: `The newest good backup is ${Math.floor(backupAgeMs / hourMs)} hours old.`,
    });
  }
  if (isNearlyFull(dataDisk)) {
    problems.push({
      problem: 'disk_nearly_full',
      text: `The disk of the data folder is full to ${shareText(dataDisk)}.`,
    });
  }
  if (isNearlyFull(redis)) {
    problems.push({ problem: 'redis_nearly_full', text: `Redis uses ${shareText(redis)} (maxmemory).` });
  }
  if (keyTrouble !== null) problems.push({ problem: 'platform_key_missing', text: keyTrouble });
  if ((unexplained ?? 0) > 0) {
    const text = `Usage records and engine counts differ for ${unexplained} models in one hour, for no known reason.`;
    problems.push({ problem: 'reconcile_unexplained', text });
  }
  return problems;
}

/** Alerts the platform's own organization of each problem, at most once a day. */
async function report({ foundation, clock }: UpkeepParts, problems: readonly Problem[]): Promise<void> {
  const platform = problems.length === 0 ? null : await foundation.accounts.readPlatformOrganization();
  if (platform === null) return;
  const day = new Date(clock.now()).toISOString().slice(0, 10);
  for (const { problem, text } of problems) {
    await foundation.alerts.raise({
      organizationId: platform.id,
      type: 'platform.problem',
      data: { problem, text, runbook: 'compose/runbooks.md#platformproblem' },
      once: `platform.problem ${problem} ${day}`,
    });
  }
}

async function readDisk(folder: string): Promise<Filling> {
  const { blocks, bavail, bsize } = await statfs(folder);
  return { used: (blocks - bavail) * bsize, size: blocks * bsize };
}

/** @returns null while PostgreSQL is unavailable */
async function readDatabaseBytes({ sql }: Db): Promise<number | null> {
  const rows = await sql<{ bytes: string }[]>`select pg_database_size(current_database())::text as bytes`.catch(
    () => [],
  );
  return rows[0] === undefined ? null : Number(rows[0].bytes);
}

/** @returns null without Redis, while Redis is unavailable, and where Redis has no maxmemory */
async function readRedis({ store }: SharedStore): Promise<Filling | null> {
  const info = store === null ? '' : String(await store.command('INFO', 'memory').catch(() => ''));
  const figure = (name: string): number => Number(new RegExp(`^${name}:(\\d+)`, 'm').exec(info)?.[1] ?? 0);
  const size = figure('maxmemory');
  return size === 0 ? null : { used: figure('used_memory'), size };
}
