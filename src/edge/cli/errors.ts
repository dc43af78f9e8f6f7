/** Ends the command with exit code 1 and this sentence. */
export class FailedError extends Error {
  /** The gateway was not there, or not well: the same may work in a moment. */
  readonly isPassing: boolean;
  constructor(message: string, { isPassing = false }: { readonly isPassing?: boolean } = {}) {
    super(message);
    this.name = 'FailedError';
    this.isPassing = isPassing;
  }
}

/** Ends the command with exit code 2, this sentence, and where to read more. */
export class UsageError extends Error {
  constructor(message: string) {
    super(message);
    this.name = 'UsageError';
  }
}
