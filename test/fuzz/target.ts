import type { Arbitrary } from 'fast-check';

/** Something that is fed with what nobody would write, and what must hold of it whatever that is. */
export interface Target<Case> {
  readonly name: TargetName;
  /** Cases of one round; after each round is looked at what the product keeps. */
  readonly roundCases: number;
  /**
   * Makes the product ready.
   * @param databaseUrl a database of its own with all migrations; null lets the gateway bring its own
   */
  open(databaseUrl: string | null): Promise<OpenTarget<Case>>;
}

export const targetNames = ['http', 'json', 'engine-files'] as const;
export type TargetName = (typeof targetNames)[number];

export interface OpenTarget<Case> {
  readonly cases: Arbitrary<Case>;
  /** Cases that were answered wrongly before; tried before anything else. */
  readonly known: readonly Case[];
  /** Tries one case. @throws Error that says what did not hold */
  try(given: Case): Promise<void>;
  /** Looks at what must hold between rounds: nothing is held, leaked or billed otherwise than it was served. */
  settle(): Promise<void>;
  /** A case so that a person can read it and write it into `known`. */
  show(given: Case): string;
  close(): Promise<void>;
}

/** Ends a case: this did not hold. */
export class BrokenPromise extends Error {
  constructor(message: string) {
    super(message);
    this.name = 'BrokenPromise';
  }
}
