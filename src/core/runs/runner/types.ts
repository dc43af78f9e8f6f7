import type { ReachedNode } from './keeper-plan.ts';

/** Interface of all runners. */

export interface WorkFile {
  /** Relative to the work folder, with `/`, without `..`. */
  readonly path: string;
  readonly bytes: Uint8Array;
  /** True if the file may be run as a program; false if absent. */
  readonly isExecutable?: boolean;
}

/** A file of a run is larger than the reader allows. Permanent: another attempt would fail too. */
export class FileTooLargeError extends Error {
  constructor(name: string, bytesMax: number) {
    super(`${name} has more than ${bytesMax} bytes`);
    this.name = 'FileTooLargeError';
  }
}

/** A command of a run; each name is used once per run. */
export interface Phase {
  /** Lower case letters, digits and `-`. */
  readonly name: string;
  /** Arguments of Terraform. */
  readonly args: readonly string[];
}

export type PhaseState =
  /** The phase was never started. */
  | { readonly kind: 'absent' }
  | { readonly kind: 'running' }
  /** `because`: the reason that only the place knows; `isExceeded`: the phase exceeded a limit. */
  | { readonly kind: 'ended'; readonly exitCode: number; readonly because?: string; readonly isExceeded?: boolean }
  /**
   * The phase was started, does not run, and has no result: it was killed together with the process that records
   * results.
   */
  | { readonly kind: 'lost' };

/** Folders as Terraform sees them. */
export interface WorkPaths {
  readonly root: string;
  /** The folder of provider packages; null if there is none. */
  readonly mirror: string | null;
}

export interface Runner {
  readonly kind: 'docker' | 'bwrap' | 'process';
  /** Name of the place where its runs are: every gateway with a runner for the same place can resume them. */
  readonly place: string;
  readonly paths: (runId: string) => WorkPaths;
  /**
   * Creates the work folder with these files.
   * @param reach nodes that the run may reach, where the runner limits the network
   * @throws Error if a phase of the run has started: the folder is in use
   */
  prepare(runId: string, files: readonly WorkFile[], reach: readonly ReachedNode[]): Promise<void>;
  /** Starts a phase in the subfolder `cwd` of the work folder. Does nothing if the phase was started before. */
  start(runId: string, cwd: string, phase: Phase): Promise<void>;
  observe(runId: string, phase: string): Promise<PhaseState>;
  /** Times by which a phase had written how many bytes, as far as its place knows, in order. Absent: unknown. */
  readTimes?(runId: string, phase: string): Promise<readonly WrittenBy[]>;
  /** Returns at most 256 KiB of a phase's output, from a byte offset. */
  readLog(runId: string, phase: string, offset: number): Promise<Buffer>;
  /** Asks Terraform to end; it stops its provisioners and writes its state. */
  interrupt(runId: string, phase: string): Promise<void>;
  /** Kills all processes of a phase at once, also those that are left after its end. */
  kill(runId: string, phase: string): Promise<void>;
  /** Returns null if the file does not exist. @throws FileTooLargeError if it is larger than `bytesMax` */
  readFile(runId: string, path: string, bytesMax: number): Promise<Buffer | null>;
  /** Removes the file at this path of the work folder; follows no link. */
  removeFile(runId: string, path: string): Promise<void>;
  /** Removes everything in the work folder except these files. Absent: the place can only remove files by name. */
  keepOnly?(runId: string, paths: readonly string[]): Promise<void>;
  /** Describes where an operator finds a file of the work folder. */
  locate(runId: string, path: string): string;
  /** Ends the processes of a run, and removes its folder. */
  remove(runId: string): Promise<void>;
  /** Lists the runs that have a work folder here. */
  list(): Promise<readonly string[]>;
}

export interface WrittenBy {
  readonly bytes: number;
  /** Milliseconds since the Unix epoch. */
  readonly atMs: number;
}

/**
 * The place answers that the run cannot run there: another attempt would not help. The API shows the message with the
 * run; the cause, which may name folders of the place, is for the log.
 */
export class RunnerRefusedError extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = 'RunnerRefusedError';
  }
}

/** Runners of container hosts, one per place, beside the gateway's own machine. */
export interface ContainerRunners {
  /** Places that answer, where runs can be resumed. */
  reachable(): Promise<readonly Runner[]>;
  /**
   * Returns the place with the fewest runs among those that answer and can start one; null if there is none.
   * @param load number of runs at each place
   */
  next(load: ReadonlyMap<string, number>): Promise<Runner | null>;
  /** Reports a failed call at a place: the place is checked again before it counts as reachable. */
  doubt(place: string): void;
  /** Problems that prevent runs, for each host that has one. */
  troubles(): readonly { readonly host: string; readonly trouble: string }[];
  close(): void;
}

/** Maximum bytes that one `readLog` returns. */
export const logChunkBytes = 262_144;
