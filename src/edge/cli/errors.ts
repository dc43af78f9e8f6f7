/** Ends the command with exit code 1 and this sentence. */
export class FailedError extends Error {
  constructor(message: string) {
    super(message);
    this.name = 'FailedError';
  }
}

/** Ends the command with exit code 2, this sentence, and where to read more. */
export class UsageError extends Error {
  constructor(message: string) {
    super(message);
    this.name = 'UsageError';
  }
}
