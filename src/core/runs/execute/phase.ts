import type { Clock } from '#base/clock.ts';
import {
  type CancelReason,
  type ChangeSummary,
  type ClaimedRun,
  type Claims,
  createPieceMask,
  leaseSeconds,
  type LogLine,
  type Mask,
  type PieceMask,
} from '#core/runs/lifecycle/lifecycle.ts';
import { logChunkBytes, type Phase, type Runner, type Unreached, type WrittenBy } from '#core/runs/runner/runner.ts';
import { logBytesMax, logLinesMax, readLogChunk } from './log-reader.ts';

/** The result of a phase. */
export interface PhaseEnd {
  /** Null if nothing has recorded it. */
  readonly exitCode: number | null;
  readonly changes: ChangeSummary | null;
  /** The first error in the output. */
  readonly error: string | null;
  /** Ports that the run's network could not connect to. */
  readonly unreached: readonly Unreached[];
  /** The reason for the end that the phase's place reports. */
  readonly because: string | null;
  /** True if the phase was ended because it exceeded a limit. */
  readonly isExceeded: boolean;
  /** The reason why the phase was asked to end; null if it was not. */
  readonly canceled: CancelReason | null;
}

/** Thrown when the gateway stops: the phase keeps running, and the gateway that adopts the run continues from here. */
export class DetachedError extends Error {
  constructor() {
    super('the gateway is stopping; the run continues without it');
    this.name = 'DetachedError';
  }
}

/** The size of a run's log so far. */
export interface Logged {
  lines: number;
  bytes: number;
}

export interface PhaseParts {
  readonly claims: Claims;
  readonly runner: Runner;
  readonly clock: Clock;
  /** Aborts when the gateway stops. */
  readonly signal: AbortSignal;
}

export interface PhaseRequest {
  readonly run: ClaimedRun;
  readonly cwd: string;
  readonly phase: Phase;
  readonly mask: Mask;
  readonly logged: Logged;
  /** The phase is ended when it takes longer. */
  readonly limitMs: number;
  /** Called every 30 seconds while the phase runs. */
  readonly snapshot?: () => Promise<void>;
  /** True if the output is not logged: it has outputs in clear text. */
  readonly silent?: boolean;
}

const pollMs = 150;
const renewEveryMs = (leaseSeconds * 1000) / 6;
const snapshotEveryMs = 30_000;
/**
 * Time after which a phase without a trace counts as lost. A phase that started is visible at once; one that is not
 * visible by then never will be, as with a full disk.
 */
const absentMsMax = 2000;
/** A cluster may have many nodes; only the last failures are used. */
const unreachedMax = 100;
/** Time between the request to end and the kill. */
const graceMs = 30_000;

/**
 * Starts a phase, or resumes one that runs or has ended, and follows it to its end.
 * @throws DetachedError, RunLostError
 */
export async function runPhase(parts: PhaseParts, request: PhaseRequest): Promise<PhaseEnd> {
  const { claims, runner } = parts;
  const { run, cwd, phase } = request;
  const isBegun = run.phase === phase.name;
  if (!isBegun) await claims.beginPhase(run, phase.name);
  if ((await runner.observe(run.id, phase.name)).kind === 'absent') await runner.start(run.id, cwd, phase);
  const ageMs = await claims.phaseAgeMs(run);
  const follower = new PhaseFollower(parts, request, isBegun ? run.logOffset : 0, ageMs);
  const end = await follower.follow();
  if (!isBegun || end.exitCode === 0 || end.canceled !== null) return end;
  // The gateway that ran it before may have asked the phase to end, and not seen that it ended.
  const { status, cancelReason } = await claims.readStatus(run);
  return status === 'CANCELING' ? { ...end, canceled: cancelReason ?? 'asked' } : end;
}

class PhaseFollower {
  readonly #parts: PhaseParts;
  readonly #request: PhaseRequest;
  readonly #mask: PieceMask;
  readonly #deadlineMs: number;
  #offset: number;
  #changes: ChangeSummary | null = null;
  #error: string | null = null;
  #unreached: readonly Unreached[] = [];
  #canceled: CancelReason | null = null;
  #killAtMs = Number.POSITIVE_INFINITY;
  #renewAtMs: number;
  #snapshotAtMs: number;
  #absentUntilMs: number;

  constructor(parts: PhaseParts, request: PhaseRequest, offset: number, ageMs: number) {
    this.#parts = parts;
    this.#request = request;
    this.#mask = createPieceMask(request.mask);
    this.#offset = offset;
    const nowMs = parts.clock.monotonicMs();
    this.#deadlineMs = nowMs + request.limitMs - ageMs;
    this.#renewAtMs = nowMs;
    this.#snapshotAtMs = nowMs + snapshotEveryMs;
    this.#absentUntilMs = nowMs + absentMsMax;
  }

  async follow(): Promise<PhaseEnd> {
    const { runner, signal, clock } = this.#parts;
    const { run, phase } = this.#request;
    for (;;) {
      if (signal.aborted) throw new DetachedError();
      const state = await runner.observe(run.id, phase.name);
      if (state.kind !== 'absent') this.#absentUntilMs = clock.monotonicMs() + absentMsMax;
      const ended = state.kind === 'ended' || state.kind === 'lost' || clock.monotonicMs() >= this.#absentUntilMs;
      // Remaining processes of the phase must not write while the log and the state are read.
      if (ended) await runner.kill(run.id, phase.name);
      await this.#drain(ended);
      if (ended) {
        const exitCode = state.kind === 'ended' ? state.exitCode : null;
        const because = (state.kind === 'ended' ? state.because : null) ?? null;
        const isExceeded = state.kind === 'ended' && state.isExceeded === true;
        const reported = { changes: this.#changes, error: this.#error, unreached: this.#unreached };
        const facts = { ...reported, canceled: this.#canceled };
        return { exitCode, because, isExceeded, ...facts };
      }
      await this.#attend();
      await pause(pollMs, signal);
    }
  }

  /** Renews the lease, and ends the phase when it was canceled or reached its limit. */
  async #attend(): Promise<void> {
    const { claims, runner, clock } = this.#parts;
    const { run, phase, snapshot } = this.#request;
    const nowMs = clock.monotonicMs();
    const isDue = nowMs >= this.#renewAtMs;
    if (isDue || this.#canceled === null) {
      const { status, cancelReason } = await (isDue ? claims.renew(run) : claims.readStatus(run));
      if (isDue) this.#renewAtMs = nowMs + renewEveryMs;
      if (status === 'CANCELING' && this.#canceled === null) await this.#end(cancelReason ?? 'asked');
    }
    if (nowMs >= this.#deadlineMs && this.#canceled === null) {
      await claims.cancel(run, 'timeout');
      await this.#end('timeout');
    }
    if (nowMs >= this.#killAtMs) await runner.kill(run.id, phase.name);
    if (nowMs >= this.#snapshotAtMs) {
      this.#snapshotAtMs = nowMs + snapshotEveryMs;
      await snapshot?.();
    }
  }

  async #end(reason: CancelReason): Promise<void> {
    const { runner, clock } = this.#parts;
    this.#canceled = reason;
    this.#killAtMs = clock.monotonicMs() + graceMs;
    await runner.interrupt(this.#request.run.id, this.#request.phase.name);
  }

  async #drain(ended: boolean): Promise<void> {
    const { claims, runner } = this.#parts;
    const { run, phase, logged, silent = false } = this.#request;
    if (silent) return;
    for (;;) {
      const chunk = await runner.readLog(run.id, phase.name, this.#offset);
      const isAll = chunk.length < logChunkBytes;
      const begin = this.#offset;
      const times = chunk.length === 0 ? [] : ((await runner.readTimes?.(run.id, phase.name)) ?? []);
      const read = readLogChunk(chunk, {
        ended: ended && isAll,
        mask: this.#mask,
        writtenAt: (bytes) => writtenAt(times, begin + bytes),
      });
      this.#changes = read.changes ?? this.#changes;
      this.#error ??= read.error;
      this.#unreached = [...this.#unreached, ...read.unreached].slice(-unreachedMax);
      if (read.bytes > 0) {
        const lines = keptLines(read.lines, logged);
        this.#offset += read.bytes;
        await claims.append(run, { phase: phase.name, lines, offset: this.#offset }, logged);
      }
      if (isAll) return;
    }
  }
}

/** Returns the time by which a phase had written this many bytes; null if its place has not recorded it. */
function writtenAt(times: readonly WrittenBy[], bytes: number): number | null {
  // Binary search: times ascend, and there may be many.
  let [low, high] = [0, times.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((times[middle]?.bytes ?? 0) < bytes) low = middle + 1;
    else high = middle;
  }
  return times[low]?.atMs ?? null;
}

/** Returns the lines that fit into a run's log, and one line that reports the limit when it is reached. */
function keptLines(lines: readonly LogLine[], logged: Logged): readonly LogLine[] {
  const kept: LogLine[] = [];
  const isFull = (): boolean => logged.bytes >= logBytesMax || logged.lines + kept.length >= logLinesMax;
  for (const line of lines) {
    if (isFull()) break;
    logged.bytes += Buffer.byteLength(line.message);
    kept.push(line);
    if (isFull()) {
      const bound = `${logBytesMax / 1024 / 1024} MiB or ${logLinesMax} lines`;
      const message = `the log has reached its limit of ${bound}; the run continues, but further output is discarded`;
      kept.push({ atMs: null, level: 'warn', type: 'truncated', message });
    }
  }
  logged.lines += kept.length;
  return kept;
}

function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      clearTimeout(timer);
      signal.removeEventListener('abort', done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    signal.addEventListener('abort', done, { once: true });
  });
}
