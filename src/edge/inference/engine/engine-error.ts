import { AppError } from '#base/errors.ts';
import type { EngineFaultKind } from '#core/engine-client/engine-client.ts';
import { engineRefusal } from './engine-refusal.ts';
import type { SentRequest } from './sent-request.ts';

export interface EngineAnswerVerdict {
  readonly error: AppError;
  /** Another replica may succeed: the fault may be only this replica's. */
  readonly retry: boolean;
  /** The answer did not come from the replica. */
  readonly unreachable: boolean;
  /** The engine's status if the request is not at fault and the engine is not just busy; else null. */
  readonly refusedWith: number | null;
  /** The answer does not show how healthy the replica is. */
  readonly isDoubtful?: boolean;
}

/** vLLM's answer for an unknown path; for an unknown model its answer has more text. */
const unknownRoute = /^\s*\{"detail": ?"Not Found"\}\s*$/;

/** vLLM's answer for a route that exists only with a flag. */
const disabledRoute = /\bendpoints are disabled\. Restart vllm serve with --/;

/** vLLM's answer for an adapter that it was not started with. */
const unknownModel = /\bmodel\b.{0,300}does not exist/s;

const busyRetryAfterSeconds = 5;
/** A longer Retry-After is not about one request. */
const retryAfterSecondsMax = 86_400;

/**
 * Statuses of engines, and of proxies and load balancers before them; also of Cloudflare (522, 524) and Anthropic
 * (529).
 */
const busyStatuses: ReadonlySet<number> = new Set([425, 429, 503, 529]);
const lateStatuses: ReadonlySet<number> = new Set([408, 504, 522, 524]);
/** The request had no effect, and another replica may accept it. */
const passingStatuses: ReadonlySet<number> = new Set([408, 421, 425, 429]);

/** True for an HTML page, which comes from a proxy: engines reject in JSON or in plain text. */
const isPage = (text: string): boolean => /^\s*</.test(text);
const isJsonText = (text: string): boolean => /^\s*\{/.test(text);

interface EngineAnswer {
  /** Any status except 200. */
  readonly status: number;
  /** Body as latin1. */
  readonly text: string;
  /** Retry-After header. */
  readonly retryAfter: string | undefined;
}

/**
 * Converts an engine's answer with an error status into the error for the client that sent this request. The status is
 * the error's reason, for logs; nothing of the text is kept.
 * @param isOurs true if Headgate started the engine
 */
export function engineError(answer: EngineAnswer, sent: SentRequest, isOurs: boolean): EngineAnswerVerdict {
  const { status, text, retryAfter } = answer;
  const reason = `engine_${status}`;
  const refusal = refusalOf(status, text, sent);
  if (refusal !== null) return { error: refusal, retry: false, unreachable: false, refusedWith: null };
  if (busyStatuses.has(status)) {
    const error = upstreamBusy(readRetryAfter(retryAfter), undefined, reason);
    return { error, retry: true, unreachable: false, refusedWith: null };
  }
  const unserved = status === 404 || status === 403 ? notServed(text, sent, isOurs) : null;
  if (unserved !== null) return unserved;
  const isLate = lateStatuses.has(status);
  const late = { status: 504, message: 'The model did not answer in time.' };
  const error = new AppError('upstream_error', { ...(isLate ? late : { status: 502 }), reason });
  // Each replica has its own key: a replica that rejects the key is another one, started at the address of a lost
  // replica. The operator of an external engine may have changed its key, and not on all replicas.
  if (status === 401) return { error, retry: true, unreachable: isOurs, refusedWith: status };
  // Another external server has its own address, credit, permissions and models.
  const retry = !isOurs || status >= 500 || passingStatuses.has(status);
  return { error, retry, unreachable: false, refusedWith: status };
}

/** Returns the error for a fault of the client; null for any other fault. */
function refusalOf(status: number, text: string, sent: SentRequest): AppError | null {
  if (status === 413 && !isJsonText(text)) {
    const message = 'The request is larger than the server of this model accepts. Send a smaller request.';
    return new AppError('request_too_large', { message, reason: 'engine_413' });
  }
  const isRefusal = (status === 400 || status === 422 || status === 413) && !isPage(text);
  return isRefusal ? engineRefusal(text, sent) : null;
}

/** Returns the seconds of a header with a number or a date, at least 1; else the default. */
function readRetryAfter(header = ''): number {
  const isNumber = /^\d{1,5}$/.test(header);
  const seconds = isNumber ? Number(header) : Math.ceil((Date.parse(header) - Date.now()) / 1000);
  return seconds <= retryAfterSecondsMax ? Math.max(1, seconds) : busyRetryAfterSeconds;
}

/** Returns the verdict for a missing adapter or route; null if 404 means something else. */
function notServed(text: string, sent: SentRequest, isOurs: boolean): EngineAnswerVerdict | null {
  if (sent.isForAdapter && unknownModel.test(text)) return lacksAdapter(isOurs);
  if (!sent.mayBeUnserved || !(unknownRoute.test(text) || disabledRoute.test(text))) return null;
  const message = 'The engine of this model does not support this endpoint. Use another endpoint for this model.';
  const error = new AppError('not_implemented', { message, lasting: true, reason: 'engine_404' });
  return { error, retry: false, unreachable: false, refusedWith: 404 };
}

/**
 * Returns the verdict of a replica that is older than the adapter in the file, or of a server that has not loaded the
 * adapter.
 */
function lacksAdapter(isOurs: boolean): EngineAnswerVerdict {
  const told = { retry: true, unreachable: false, isDoubtful: true };
  if (isOurs) {
    const message = 'The engine of this model has not been updated with this adapter yet. Try again shortly.';
    return { ...told, error: upstreamBusy(busyRetryAfterSeconds, message, 'engine_404'), refusedWith: null };
  }
  const message = 'The engine of this model has not loaded this adapter.';
  return { ...told, error: new AppError('upstream_error', { message, reason: 'engine_404' }), refusedWith: 404 };
}

/** Returns the error for an engine whose answer is unusable, or that broke off. */
export function upstreamFailed(status = 502, reason = 'engine_answer'): AppError {
  return new AppError('upstream_error', { status, reason });
}

/** Returns the error for a failed call. */
export function faultError(kind: EngineFaultKind): AppError {
  const isLate = kind === 'first_byte_timeout' || kind === 'idle_timeout';
  return upstreamFailed(isLate ? 504 : 502, `engine_${kind}`);
}

/** Returns the error for an engine that accepts nothing at the moment. */
export function upstreamBusy(retryAfterSeconds: number, message?: string, reason?: string): AppError {
  return new AppError('upstream_error', {
    status: 503,
    message: message ?? 'The model is busy. Try again shortly.',
    headers: { 'retry-after': String(retryAfterSeconds) },
    ...(reason !== undefined && { reason }),
  });
}
