import { cleanText } from './table.ts';

/** What is said of them holds no control characters: servers and files have a part in it. */

interface FailureFacts {
  readonly isPassing?: boolean;
  readonly requestId?: string | null;
  readonly code?: string | null;
  readonly isInterrupted?: boolean;
}

/** Ends the command with exit code 1, or 130 where Ctrl-C did it, and this sentence. */
export class FailedError extends Error {
  /** The gateway was not there, or not well: the same may work in a moment. */
  readonly isPassing: boolean;
  /** Under which the gateway logged what it refused; null where it did not get that far. */
  readonly requestId: string | null;
  /** The gateway's own word for what went wrong, such as `not_found`; `failed` where it said none. */
  readonly code: string;
  /** Whether whoever typed the command ended it. */
  readonly isInterrupted: boolean;

  constructor(
    message: string,
    { isPassing = false, requestId = null, code = null, isInterrupted = false }: FailureFacts = {},
  ) {
    super(cleanText(message));
    this.name = 'FailedError';
    this.isPassing = isPassing;
    this.requestId = requestId === null ? null : cleanText(requestId);
    this.code = code ?? 'failed';
    this.isInterrupted = isInterrupted;
  }
}

/** Ends the command with exit code 2 and this sentence. */
export class UsageError extends Error {
  constructor(message: string) {
    super(cleanText(message));
    this.name = 'UsageError';
  }
}
