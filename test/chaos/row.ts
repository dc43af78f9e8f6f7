import type { Figures } from './parts/checker.ts';
import type { Scene, SceneOptions } from './parts/scene.ts';
import type { Seen } from './parts/client.ts';

/** One line of the table of faults: what is done, and what must hold while and after. */
export interface Row {
  readonly name: string;
  /** A description in a few words, for `--list`. */
  readonly what: string;
  /** Checks its needs of the machine; null when all are there, else the missing one. */
  readonly missing?: () => string | null;
  /** Seconds that it may take beside faults and kills; 150 when absent. */
  readonly limitSeconds?: number;
  run(stage: Stage): Promise<void>;
}

/** The parts that a row works with. */
export interface Stage {
  readonly seed: number;
  /** How long its fault lasts, where that may be chosen. */
  readonly seconds: number;
  /** How often a gateway is killed. */
  readonly kills: number;
  /** Number of requests of an ordinary day. */
  readonly requests: number;
  /** Every bound of time is taken so many times: 1, or more on a machine that is known to be busy. */
  readonly slack: number;
  /** A folder of its own, which everybody may pass. */
  readonly dir: string;
  open(options?: SceneOptions): Promise<Scene>;
  /** Records a requirement. @param why the defect, reported where it does not hold */
  must(holds: boolean, why: string): void;
  /** Number of requirements that did not hold so far. */
  readonly broken: number;
  /** A figure of this row's own, for its line. */
  note(text: string): void;
  /** Adds the clients' answers, for the line's figures. */
  saw(seen: readonly Seen[]): void;
  /** How long it took until everything was as before. */
  recovered(seconds: number): void;
  /** Sets of the checker. */
  counted(figures: Figures): void;
  /** Undone at the end. */
  later(undo: () => Promise<void> | void): void;
}
