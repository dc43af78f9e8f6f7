import { cleanText } from './table.ts';

/** Details of a failure. The errors remove control characters from texts, which may come from servers and files. */

interface FailureFacts {
  readonly isPassing?: boolean;
  readonly requestId?: string | null;
  readonly code?: string | null;
  readonly isInterrupted?: boolean;
}

/** Ends the command with this message and exit code 1, or 130 if Ctrl-C ended it. */
export class FailedError extends Error {
  /** True if the gateway was unreachable or failing: a retry may succeed. */
  readonly isPassing: boolean;
  /** Id under which the gateway logged the rejected request; null if no request reached the gateway. */
  readonly requestId: string | null;
  /** The gateway's error code, such as `not_found`; `failed` if there is none. */
  readonly code: string;
  /** True if the user ended the command. */
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

/** Ends the command with this message and exit code 2. */
export class UsageError extends Error {
  constructor(message: string) {
    super(cleanText(message));
    this.name = 'UsageError';
  }
}
