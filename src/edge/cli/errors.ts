/** Ends the command with exit code 1 and this sentence. */
export class FailedError extends Error {
  /** Under which the gateway logged what it refused; null where it did not get that far. */
  readonly requestId: string | null;

  constructor(message: string, requestId?: string | null) {
    super(message);
    this.name = 'FailedError';
    this.requestId = requestId ?? null;
  }
}

/** Ends the command with exit code 2, this sentence, and where to read more. */
export class UsageError extends Error {
  constructor(message: string) {
    super(message);
    this.name = 'UsageError';
  }
}
