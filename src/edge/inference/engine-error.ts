import { AppError } from '#base/errors.ts';
import { engineRefusal } from './engine-refusal.ts';
import type { SentRequest } from './sent-request.ts';

export interface EngineAnswerVerdict {
  readonly error: AppError;
  /** The fault may be this replica's alone. */
  readonly retry: boolean;
  /** What answered is not the replica. */
  readonly unreachable: boolean;
}

const busyRetryAfterSeconds = 5;

interface EngineAnswer {
  /** Not 200. */
  readonly status: number;
  /** Its body as latin1. */
  readonly text: string;
  /** Its Retry-After header. */
  readonly retryAfter: string | undefined;
}

/** What an engine's answer with an error status means for the client that sent this request. */
export function engineError({ status, text, retryAfter }: EngineAnswer, sent: SentRequest): EngineAnswerVerdict {
  if (status === 400 || status === 422 || status === 413) {
    return { error: engineRefusal(text, sent), retry: false, unreachable: false };
  }
  if (status === 429 || status === 503) {
    const seconds = /^\d{1,5}$/.test(retryAfter ?? '') ? Number(retryAfter) : busyRetryAfterSeconds;
    return { error: upstreamBusy(Math.max(1, seconds)), retry: true, unreachable: false };
  }
  const error = new AppError('upstream_error', { status: status === 504 ? 504 : 502 });
  // Each replica has a key of its own: this is another one, started at the address of one that is gone.
  if (status === 401) return { error, retry: true, unreachable: true };
  return { error, retry: status >= 500, unreachable: false };
}

/** The engine takes nothing at the moment. */
export function upstreamBusy(retryAfterSeconds: number, message?: string, reason?: string): AppError {
  return new AppError('upstream_error', {
    status: 503,
    message: message ?? 'The model is busy at the moment; try again shortly.',
    headers: { 'retry-after': String(retryAfterSeconds) },
    ...(reason !== undefined && { reason }),
  });
}
