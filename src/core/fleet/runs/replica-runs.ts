import { randomUUID } from 'node:crypto';
import type { Clock } from '#base/clock.ts';
import type { Db } from '#base/database/database.ts';
import { isLate } from '#base/is-late.ts';
import type { Log } from '#base/log.ts';
import { explainExit, type ObservedReplica, type Replica } from '#core/fleet/drivers/drivers.ts';
import { type EngineCounters, type EngineReading, readEngine } from '#core/fleet/serving/serving.ts';
import { type HourRow, readOpenRuns, type RunRow, writeRuns } from './run-table.ts';

/** A replica as the leader knows it. */
export interface FollowedReplica {
  readonly found: ObservedReplica;
  readonly driver: string;
  /** Part of its card that each GPU is, in 28ths. */
  readonly gpuShare: number;
  /** Image of a container. */
  readonly image: string | null;
  readonly isReady: boolean;
  /** Why the replica must end or sleep; null if it stays. */
  readonly leaves: string | null;
}

/**
 * Records the runs of a scope's replicas, and reads their counters while this gateway leads the scope. No caller waits
 * for it: failed reads and writes are retried.
 */
export interface ReplicaRuns {
  /** Records that this gateway requested the start: everything that the replica counts belongs to its run. */
  starting(replicaId: string): void;
  /** Updates the runs; must be called at least once a second. `away`: unreachable hosts. */
  follow(replicas: readonly FollowedReplica[], away: ReadonlySet<string>): void;
  /** Uses a reading that was made for another purpose; `askedMs` is of the monotonic clock. */
  take(replicaId: string, reading: EngineReading, askedMs: number): void;
  /** Reads the replica's counters once more before it ends. */
  lastReading(replica: Replica): Promise<void>;
  /** Reads and writes all counters now, if this gateway leads. */
  readNow(): Promise<void>;
  /** Drops the runs, because another gateway leads: they may be wrong when this gateway leads again. */
  stepDown(): void;
  /** Writes what is pending, within seconds. */
  close(): Promise<void>;
}

export interface ReplicaRunsOptions {
  readonly db: Db;
  /** One gateway at a time leads the scope. */
  readonly scope: string;
  readonly clock: Clock;
  readonly log: Log;
  readonly everyMs?: number;
}

interface Run {
  readonly row: RunRow;
  /** null once the replica no longer exists. */
  replica: Replica | null;
  leaves: string | null;
  isRunning: boolean;
  /** True if the replica had no request at the last reading. */
  isIdle: boolean;
  /** True if the replica was read after its stop was decided. */
  readAtStop: boolean;
  /** When the last accepted reading was requested, and when to read again; monotonic milliseconds. */
  askedMs: number;
  dueMs: number;
}

const hourMs = 3_600_000;
const everyMsDefault = 10_000;
/** Interval of readings while an engine does not answer yet. */
const startingMs = 1000;
const closeMsMax = 5000;

export function createReplicaRuns(options: ReplicaRunsOptions): ReplicaRuns {
  return new LeaderRuns(options);
}

class LeaderRuns implements ReplicaRuns {
  readonly #options: ReplicaRunsOptions;
  /** Runs by replica id; null before they are read from the table. */
  #runs: Map<string, Run> | null = null;
  #loading = false;
  readonly #started = new Set<string>();
  readonly #unwritten = new Map<string, RunRow>();
  readonly #unwrittenHours = new Map<string, HourRow>();
  #round: Promise<void> | null = null;
  #flushing: Promise<void> | null = null;
  #isAway = false;
  #closed = false;

  constructor(options: ReplicaRunsOptions) {
    this.#options = options;
  }

  starting(replicaId: string): void {
    this.#started.add(replicaId);
  }

  follow(replicas: readonly FollowedReplica[], away: ReadonlySet<string>): void {
    if (this.#closed) return;
    if (this.#runs === null) {
      void this.#load();
      return;
    }
    const runs = this.#runs;
    const present = new Set<string>();
    for (const one of replicas) {
      const { id } = one.found.replica;
      if (one.found.state === 'exited') {
        this.#end(runs, id, one);
        continue;
      }
      present.add(id);
      if (one.found.state === 'creating') continue;
      const run = runs.get(id) ?? this.#begin(runs, one);
      this.#update(run, one);
    }
    for (const [id, { row }] of runs) if (!present.has(id) && !away.has(row.host)) this.#end(runs, id, null);
    const nowMs = this.#options.clock.monotonicMs();
    const isDue = [...runs.values()].some(({ dueMs, isRunning }) => isRunning && dueMs <= nowMs);
    if (isDue || this.#unwritten.size > 0) void this.#readDue();
  }

  take(replicaId: string, reading: EngineReading, askedMs: number): void {
    const run = this.#runs?.get(replicaId);
    if (run !== undefined) this.#accept(run, reading, askedMs);
  }

  async lastReading(replica: Replica): Promise<void> {
    const run = this.#runs?.get(replica.id);
    if (run === undefined || !run.isRunning) return;
    const askedMs = await this.#read(run, replica);
    // A later reading may have overtaken this one.
    run.readAtStop = run.askedMs >= askedMs;
  }

  async readNow(): Promise<void> {
    if (this.#runs === null) return;
    await this.#round;
    for (const run of this.#runs.values()) run.dueMs = Math.min(run.dueMs, this.#options.clock.monotonicMs());
    await this.#readDue();
  }

  stepDown(): void {
    this.#runs = null;
    for (const [id, { endedMs }] of this.#unwritten) if (endedMs === null) this.#unwritten.delete(id);
  }

  async close(): Promise<void> {
    await isLate(
      this.readNow().then(() => this.#flush()),
      closeMsMax,
    );
    this.#closed = true;
  }

  async #load(): Promise<void> {
    if (this.#loading) return;
    this.#loading = true;
    try {
      const rows = await readOpenRuns(this.#options.db, this.#options.scope);
      this.#runs = new Map(rows.map((row) => [row.replicaId, newRun(row)]));
    } catch (error) {
      this.#onAway(error);
    } finally {
      this.#loading = false;
    }
  }

  #begin(runs: Map<string, Run>, { found, driver, gpuShare, image }: FollowedReplica): Run {
    const { replica, placement, specHash } = found;
    const isFromStart = this.#started.delete(replica.id);
    const run = newRun({
      id: randomUUID(),
      model: replica.engineId,
      replicaId: replica.id,
      driver,
      host: placement.host,
      gpuIds: placement.gpuIds,
      gpuShare,
      specHash,
      image,
      startedMs: this.#options.clock.now(),
      heldMs: null,
      readyMs: null,
      endedMs: null,
      ended: null,
      endReason: null,
      exitCode: null,
      first: isFromStart ? { promptTokens: 0, generationTokens: 0, requests: 0, processStartedAt: null } : null,
      last: null,
      scrapedMs: null,
    });
    runs.set(replica.id, run);
    this.#unwritten.set(run.row.id, run.row);
    return run;
  }

  #update(run: Run, { found, isReady, leaves }: FollowedReplica): void {
    run.replica = found.replica;
    run.isRunning = found.state === 'running';
    run.leaves = leaves;
    if (!isReady || run.row.readyMs !== null) return;
    run.row.readyMs = this.#options.clock.now();
    this.#unwritten.set(run.row.id, run.row);
  }

  /** @param seen the replica observed as exited; null if it was not observed any more */
  #end(runs: Map<string, Run>, replicaId: string, seen: FollowedReplica | null): void {
    this.#started.delete(replicaId);
    const run = runs.get(replicaId);
    if (run === undefined) return;
    runs.delete(replicaId);
    this.#close(run, howEnded(run, seen?.found.exit ?? null));
  }

  #close(run: Run, how: HowEnded): void {
    run.replica = null;
    run.isRunning = false;
    Object.assign(run.row, how, { endedMs: this.#options.clock.now() });
    this.#unwritten.set(run.row.id, run.row);
  }

  /** Runs one round at a time. */
  #readDue(): Promise<void> {
    this.#round ??= this.#readAll().finally(() => {
      this.#round = null;
    });
    return this.#round;
  }

  async #readAll(): Promise<void> {
    const { clock } = this.#options;
    const nowMs = clock.monotonicMs();
    const due = [...(this.#runs?.values() ?? [])].filter(({ dueMs, isRunning }) => isRunning && dueMs <= nowMs);
    await Promise.all(due.map(async (run) => (run.replica === null ? null : this.#read(run, run.replica))));
    await this.#flush();
  }

  /** @returns when the reading was requested */
  async #read(run: Run, replica: Replica): Promise<number> {
    const askedMs = this.#options.clock.monotonicMs();
    this.#accept(run, await readEngine(replica), askedMs);
    return askedMs;
  }

  #accept(run: Run, { counters, load }: EngineReading, askedMs: number): void {
    const { clock, everyMs = everyMsDefault } = this.#options;
    // A later answer may overtake an earlier one.
    if (askedMs < run.askedMs || run.row.endedMs !== null) return;
    run.dueMs = clock.monotonicMs() + (load === 'unknown' && run.row.last === null ? startingMs : everyMs);
    if (counters === null) return;
    run.askedMs = askedMs;
    if (isBefore(counters, run.row.last)) {
      this.#restarted(run, counters, askedMs);
      return;
    }
    run.isIdle = typeof load === 'object' && load.running + load.waiting === 0;
    const scrapedMs = Math.round(clock.now() - (clock.monotonicMs() - askedMs));
    if (run.row.first === null) {
      run.row.first = counters;
      run.row.heldMs = heldSince(counters, run.row.startedMs);
      run.row.startedMs = scrapedMs;
    }
    run.row.last = counters;
    run.row.scrapedMs = scrapedMs;
    const { id: runId } = run.row;
    const hour = scrapedMs - (scrapedMs % hourMs);
    this.#unwritten.set(runId, run.row);
    this.#unwrittenHours.set(`${runId} ${hour}`, { runId, hourMs: hour, counters, scrapedMs });
  }

  /** Starts a new run: counters that restart belong to another process under the same id. */
  #restarted(run: Run, counters: EngineCounters, askedMs: number): void {
    const { replica } = run;
    this.#close(run, { ended: 'unclean', endReason: 'restarted', exitCode: null });
    const first = { promptTokens: 0, generationTokens: 0, requests: 0, processStartedAt: null };
    const began = { id: randomUUID(), startedMs: this.#options.clock.now(), readyMs: run.row.readyMs };
    const open = {
      heldMs: null,
      endedMs: null,
      ended: null,
      endReason: null,
      exitCode: null,
      last: null,
      scrapedMs: null,
    };
    const next = newRun({ ...run.row, ...open, ...began, first });
    next.replica = replica;
    next.isRunning = true;
    this.#runs?.set(run.row.replicaId, next);
    this.#accept(next, { counters, load: 'unknown', progress: null, kvCacheUse: null }, askedMs);
  }

  async #flush(): Promise<void> {
    while (this.#flushing !== null) await this.#flushing;
    this.#flushing = this.#write().finally(() => {
      this.#flushing = null;
    });
    await this.#flushing;
  }

  async #write(): Promise<void> {
    const { db, scope } = this.#options;
    if (this.#unwritten.size === 0 && this.#unwrittenHours.size === 0) return;
    const runs = [...this.#unwritten.values()].map((row) => ({ ...row }));
    const hours = [...this.#unwrittenHours];
    this.#unwritten.clear();
    this.#unwrittenHours.clear();
    try {
      await writeRuns(db, scope, { runs: runs.filter(({ endedMs }) => endedMs !== null), hours: [] });
      await writeRuns(db, scope, {
        runs: runs.filter(({ endedMs }) => endedMs === null),
        hours: hours.map(([, row]) => row),
      });
      this.#isAway = false;
    } catch (error) {
      this.#onAway(error);
      if (isTaken(error)) {
        // Another gateway led in between, and has recorded its own runs for these replicas.
        this.#runs = null;
        return;
      }
      for (const row of runs) if (!this.#unwritten.has(row.id)) this.#unwritten.set(row.id, row);
      for (const [key, row] of hours) if (!this.#unwrittenHours.has(key)) this.#unwrittenHours.set(key, row);
    }
  }

  #onAway(error: unknown): void {
    if (!this.#isAway) {
      this.#options.log.warn(
        { err: error },
        'run times and token counters of replicas could not be stored in PostgreSQL; costs and reconciliation are late. Retrying',
      );
    }
    this.#isAway = true;
  }
}

function newRun(row: RunRow): Run {
  const state = { replica: null, leaves: null, isRunning: false, isIdle: false, readAtStop: false };
  return { row, ...state, askedMs: -Infinity, dueMs: -Infinity };
}

type HowEnded = Pick<RunRow, 'ended' | 'endReason' | 'exitCode'>;

function howEnded({ row, leaves, readAtStop, isIdle }: Run, exit: ObservedReplica['exit']): HowEnded {
  const exitCode = exit?.exitCode ?? null;
  // An external engine has not ended: its file was removed.
  if (row.driver === 'external') return { ended: 'clean', endReason: 'removed', exitCode };
  const isAsked = exit === null ? leaves !== null : exit.stopRequested;
  if (!isAsked) return { ended: 'unclean', endReason: exit === null ? 'vanished' : explainExit(exit).kind, exitCode };
  // An engine without counters has nothing that could be missed.
  const isComplete = row.last === null || (readAtStop && isIdle);
  return { ended: isComplete ? 'clean' : 'unclean', endReason: leaves ?? 'stopped', exitCode };
}

function isBefore(now: EngineCounters, last: EngineCounters | null): boolean {
  if (last === null) return false;
  if (now.promptTokens < last.promptTokens || now.generationTokens < last.generationTokens) return true;
  return (
    last.processStartedAt !== null && now.processStartedAt !== null && last.processStartedAt !== now.processStartedAt
  );
}

/** Process start times further in the past are ignored: a clock must be wrong. */
const heldMsMax = 7 * 24 * hourMs;

/**
 * Returns when a found replica got its GPUs. The replica may be much older than its discovery if the gateway that
 * started it was killed before recording the run. The process reports its own start.
 */
function heldSince({ processStartedAt }: EngineCounters, foundMs: number): number {
  const saidMs = Math.round(Number(processStartedAt ?? Number.NaN) * 1000);
  return saidMs > foundMs - heldMsMax && saidMs < foundMs ? saidMs : foundMs;
}

function isTaken(error: unknown): boolean {
  return error instanceof Error && 'code' in error && error.code === '23505';
}
