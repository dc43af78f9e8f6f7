/** Ends the command with exit code 1 and this sentence. */
export class FailedError extends Error {
  /** The gateway was not there, or not well: the same may work in a moment. */
  readonly isPassing: boolean;
  /** Under which the gateway logged what it refused; null where it did not get that far. */
  readonly requestId: string | null;

  constructor(
    message: string,
    { isPassing = false, requestId = null }: Partial<Pick<FailedError, 'isPassing' | 'requestId'>> = {},
  ) {
    super(message);
    this.name = 'FailedError';
    this.isPassing = isPassing;
    this.requestId = requestId;
  }
}

/** Ends the command with exit code 2, this sentence, and where to read more. */
export class UsageError extends Error {
  constructor(message: string) {
    super(message);
    this.name = 'UsageError';
  }
}
