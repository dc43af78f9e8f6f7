import type { ReachedNode } from './keeper-plan.ts';

/** What a runner does, whichever it is. */

export interface WorkFile {
  /** Below the work folder, with `/`, without `..`. */
  readonly path: string;
  readonly bytes: Uint8Array;
  /** Whether it may be run as a program; no, where absent. */
  readonly isExecutable?: boolean;
}

/** A file of a run is larger than what is read of it: reading it again would find the same. */
export class FileTooLargeError extends Error {
  constructor(name: string, bytesMax: number) {
    super(`${name} has more than ${bytesMax} bytes`);
    this.name = 'FileTooLargeError';
  }
}

/** A command of one run; its name is used once per run. */
export interface Phase {
  /** Lower case letters, digits and `-`. */
  readonly name: string;
  /** Arguments of Terraform. */
  readonly args: readonly string[];
}

export type PhaseState =
  /** It was never started. */
  | { readonly kind: 'absent' }
  | { readonly kind: 'running' }
  /** `because`: what the place knows of the end that Terraform could not say itself; `isExceeded`: it took too much. */
  | { readonly kind: 'ended'; readonly exitCode: number; readonly because?: string; readonly isExceeded?: boolean }
  /** It was started and does not run, and nobody wrote down how it ended: it was killed with whoever would have. */
  | { readonly kind: 'lost' };

/** Folders as Terraform sees them. */
export interface WorkPaths {
  readonly root: string;
  /** Of the folder of provider packages; null where there is none. */
  readonly mirror: string | null;
}

export interface Runner {
  readonly kind: 'docker' | 'bwrap' | 'process';
  /** Where its runs are: every gateway that finds a runner of the same place can go on with them. */
  readonly place: string;
  readonly paths: (runId: string) => WorkPaths;
  /**
   * Makes the work folder with these files.
   * @param reach nodes that the run may reach, where the runner holds it to that
   * @throws Error where a phase of the run has begun: the folder is in use
   */
  prepare(runId: string, files: readonly WorkFile[], reach: readonly ReachedNode[]): Promise<void>;
  /** Starts a phase in the folder `cwd` of the work folder; one that was started before is left alone. */
  start(runId: string, cwd: string, phase: Phase): Promise<void>;
  observe(runId: string, phase: string): Promise<PhaseState>;
  /** When a phase had written so many bytes, as far as its place knows; in their order. Absent: it does not. */
  readTimes?(runId: string, phase: string): Promise<readonly WrittenBy[]>;
  /** At most 256 KiB of what a phase has written, from a byte on. */
  readLog(runId: string, phase: string, offset: number): Promise<Buffer>;
  /** Asks Terraform to end; it stops its provisioners and writes its state. */
  interrupt(runId: string, phase: string): Promise<void>;
  /** Ends everything that a phase started, at once; of a phase that has ended, what it left running. */
  kill(runId: string, phase: string): Promise<void>;
  /** Null where there is no such file. @throws FileTooLargeError for one above `bytesMax` */
  readFile(runId: string, path: string, bytesMax: number): Promise<Buffer | null>;
  /** Removes what is at this very place of the work folder; through a link it goes nowhere. */
  removeFile(runId: string, path: string): Promise<void>;
  /** Removes all of the work folder but these files. Absent: its place can only remove files that it is told. */
  keepOnly?(runId: string, paths: readonly string[]): Promise<void>;
  /** Where an operator finds a file of the work folder. */
  locate(runId: string, path: string): string;
  /** Ends what still runs of it, and removes the folder. */
  remove(runId: string): Promise<void>;
  /** Runs that have a work folder here. */
  list(): Promise<readonly string[]>;
}

export interface WrittenBy {
  readonly bytes: number;
  /** Milliseconds since the Unix epoch. */
  readonly atMs: number;
}

/**
 * The place answers, and says that the run cannot be made there: trying again would not help. The message is shown with
 * the run; the cause, which may name folders of the place, is for the log.
 */
export class RunnerRefusedError extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = 'RunnerRefusedError';
  }
}

/** Places with a runner each, beside the gateway's own machine. */
export interface ContainerRunners {
  /** Those that answer, where runs can be gone on with. */
  reachable(): Promise<readonly Runner[]>;
  /**
   * Of those that answer and can begin a run, the one that has the fewest; null: none can.
   * @param load how many runs each place has
   */
  next(load: ReadonlyMap<string, number>): Promise<Runner | null>;
  /** A call there went wrong: it is asked anew before it counts as one that answers. */
  doubt(place: string): void;
  /** What keeps each of the others from beginning one. */
  troubles(): readonly { readonly host: string; readonly trouble: string }[];
  close(): void;
}

/** Bytes of one `readLog`. */
export const logChunkBytes = 262_144;
