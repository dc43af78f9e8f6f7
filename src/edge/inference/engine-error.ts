import { AppError } from '#base/errors.ts';
import { engineRefusal } from './engine-refusal.ts';
import type { SentRequest } from './sent-request.ts';

export interface EngineAnswerVerdict {
  readonly error: AppError;
  /** The fault may be this replica's alone. */
  readonly retry: boolean;
  /** What answered is not the replica. */
  readonly unreachable: boolean;
  /** The engine's status where the request is not at fault and the engine not just busy; else null. */
  readonly refusedWith: number | null;
  /** It says nothing of how well the replica is. */
  readonly isDoubtful?: boolean;
}

/** What vLLM says of a path that it does not know; of a model that it does not know it says more. */
const unknownRoute = /^\s*\{"detail": ?"Not Found"\}\s*$/;

/** What vLLM says of an adapter that it was not started with. */
const unknownModel = /\bmodel\b.{0,300}does not exist/s;

const busyRetryAfterSeconds = 5;

interface EngineAnswer {
  /** Not 200. */
  readonly status: number;
  /** Its body as latin1. */
  readonly text: string;
  /** Its Retry-After header. */
  readonly retryAfter: string | undefined;
}

/**
 * What an engine's answer with an error status means for the client that sent this request. The status is the error's
 * reason, for logs; nothing of the text is kept.
 * @param isOurs Headgate started the engine
 */
export function engineError(answer: EngineAnswer, sent: SentRequest, isOurs: boolean): EngineAnswerVerdict {
  const { status, text, retryAfter } = answer;
  const reason = `engine_${status}`;
  if (status === 400 || status === 422 || status === 413) {
    return { error: engineRefusal(text, sent), retry: false, unreachable: false, refusedWith: null };
  }
  if (status === 429 || status === 503) {
    const seconds = /^\d{1,5}$/.test(retryAfter ?? '') ? Number(retryAfter) : busyRetryAfterSeconds;
    const error = upstreamBusy(Math.max(1, seconds), undefined, reason);
    return { error, retry: true, unreachable: false, refusedWith: null };
  }
  const unserved = status === 404 ? notServed(text, sent, isOurs) : null;
  if (unserved !== null) return unserved;
  const error = new AppError('upstream_error', { status: status === 504 ? 504 : 502, reason });
  // Each replica has a key of its own: this is another one, started at the address of one that is gone. Whoever else
  // runs an engine may have changed its key, and not everywhere.
  if (status === 401) return { error, retry: true, unreachable: isOurs, refusedWith: status };
  return { error, retry: status >= 500, unreachable: false, refusedWith: status };
}

/** What an engine does not have, of what it might have; null where 404 means something else. */
function notServed(text: string, sent: SentRequest, isOurs: boolean): EngineAnswerVerdict | null {
  if (sent.isForAdapter && unknownModel.test(text)) return lacksAdapter(isOurs);
  if (!sent.mayBeUnserved || !unknownRoute.test(text)) return null;
  const message = 'The engine of this model does not serve this route; ask the model by another one.';
  const error = new AppError('not_implemented', { message, lasting: true, reason: 'engine_404' });
  return { error, retry: false, unreachable: false, refusedWith: 404 };
}

/** A replica from before the adapter was in the file, or another server than the one that has loaded it. */
function lacksAdapter(isOurs: boolean): EngineAnswerVerdict {
  const told = { retry: true, unreachable: false, isDoubtful: true };
  if (isOurs) {
    const message = 'The engine of this model is not renewed yet to serve this adapter; try again shortly.';
    return { ...told, error: upstreamBusy(busyRetryAfterSeconds, message, 'engine_404'), refusedWith: null };
  }
  const message = 'The engine of this model has not loaded this adapter.';
  return { ...told, error: new AppError('upstream_error', { message, reason: 'engine_404' }), refusedWith: 404 };
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
