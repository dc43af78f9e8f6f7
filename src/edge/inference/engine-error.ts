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
/** Whoever names a longer time does not mean one request. */
const retryAfterSecondsMax = 86_400;

/** Of engines, and of proxies and load balancers before them; those of Cloudflare (522, 524) and Anthropic (529) too. */
const busyStatuses: ReadonlySet<number> = new Set([425, 429, 503, 529]);
const lateStatuses: ReadonlySet<number> = new Set([408, 504, 522, 524]);
/** The request did nothing, and another replica may take it. */
const passingStatuses: ReadonlySet<number> = new Set([408, 421, 425, 429]);

/** A page is a proxy's own: engines refuse in JSON or in plain text. */
const isPage = (text: string): boolean => /^\s*</.test(text);
const isJsonText = (text: string): boolean => /^\s*\{/.test(text);

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
  const refusal = refusalOf(status, text, sent);
  if (refusal !== null) return { error: refusal, retry: false, unreachable: false, refusedWith: null };
  if (busyStatuses.has(status)) {
    const error = upstreamBusy(readRetryAfter(retryAfter), undefined, reason);
    return { error, retry: true, unreachable: false, refusedWith: null };
  }
  const unserved = status === 404 ? notServed(text, sent, isOurs) : null;
  if (unserved !== null) return unserved;
  const isLate = lateStatuses.has(status);
  const late = { status: 504, message: 'The model did not answer in time.' };
  const error = new AppError('upstream_error', { ...(isLate ? late : { status: 502 }), reason });
  // Each replica has a key of its own: this is another one, started at the address of one that is gone. Whoever else
  // runs an engine may have changed its key, and not everywhere.
  if (status === 401) return { error, retry: true, unreachable: isOurs, refusedWith: status };
  const retry = status >= 500 || passingStatuses.has(status);
  return { error, retry, unreachable: false, refusedWith: status };
}

/** What is the client's own fault; null for what is not. */
function refusalOf(status: number, text: string, sent: SentRequest): AppError | null {
  if (status === 413 && !isJsonText(text)) {
    const message = 'The request is larger than the server of this model accepts. Send less.';
    return new AppError('request_too_large', { message, reason: 'engine_413' });
  }
  const isRefusal = (status === 400 || status === 422 || status === 413) && !isPage(text);
  return isRefusal ? engineRefusal(text, sent) : null;
}

/** Seconds, at least one: of a header with a number or a date, else the default. */
function readRetryAfter(header = ''): number {
  const isNumber = /^\d{1,5}$/.test(header);
  const seconds = isNumber ? Number(header) : Math.ceil((Date.parse(header) - Date.now()) / 1000);
  return seconds <= retryAfterSecondsMax ? Math.max(1, seconds) : busyRetryAfterSeconds;
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
