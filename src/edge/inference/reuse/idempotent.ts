import type { IncomingMessage } from 'node:http';
import { AppError } from '#base/errors.ts';
import type { ApiKey } from '#core/keys/keys.ts';
import {
  carriedAnswerBytesMax,
  type ClaimResult,
  compress,
  type Idempotency,
  type IdempotentRun,
  ownKeyMark,
  type SettledClaim,
  type SharedEnd,
} from '#core/stored-requests/stored-requests.ts';
import { ClientGoneError } from '#edge/http/http.ts';
import { type AnswerText, nameFallback, type Outcome, textOf } from '#edge/inference/answer/answer.ts';
import type { Call, CallFindings, CallReuse, InferenceRequest } from '#edge/inference/call/call.ts';

const headerName = 'idempotency-key';
const replayedHeader = 'idempotent-replayed';
const originalHeader = 'x-headgate-original-request-id';
const pattern = /^[\x20-\x7e]{1,255}$/;
/** A larger answer is not kept, except for a batch: a repetition runs again. */
export const replayBytesMax = 33_554_432;
/** Retry-After while another gateway runs the request; how long it will run is unknown. */
const elsewhereRetrySeconds = 2;

export function hasIdempotencyKey(incoming: IncomingMessage): boolean {
  return incoming.headers[headerName] !== undefined;
}

/** @throws AppError invalid_request_error */
function readIdempotencyKey({ incoming, terms }: Call): string {
  const value = incoming.headers[headerName];
  // Requests made by the gateway itself have keys with a mark of their own.
  const mark = terms.isWholeOrFree ? ownKeyMark : '';
  if (typeof value === 'string' && value.startsWith(mark) && pattern.test(value.slice(mark.length))) return value;
  throw new AppError('invalid_request_error', {
    message: 'Idempotency-Key: send 1 to 255 printable ASCII characters.',
    param: 'Idempotency-Key',
  });
}

/** The request's own right to run, or the text of the earlier answer. */
export type Claimed = { readonly run: IdempotentRun } | { readonly text: string };

/**
 * Claims the request's Idempotency-Key. Waits if the same request already runs in this gateway.
 * @param onWait called when there is something to wait for
 * @throws AppError invalid_request_error, conflict, unprocessable, or the error of the request that was joined
 */
export async function claimKey(
  idempotency: Idempotency,
  call: Call,
  { caller, fields }: InferenceRequest,
  onWait: () => void,
): Promise<Claimed> {
  const idempotencyKey = readIdempotencyKey(call);
  const { requestId } = call;
  const { id: keyId, organizationId } = caller.key;
  const bodyHash = Buffer.from(fields.hash ?? '', 'hex');
  const claim = { organizationId, keyId, idempotencyKey, requestId, bodyHash };
  const beforeWait = (original: string): void => {
    // The answer will be another request's, and its head may have to be sent before it arrives.
    nameOriginal(call, original);
    onWait();
  };
  const result = await call.stop.untilStopped((signal) => idempotency.claim(claim, { signal, onWait: beforeWait }));
  return claimed(call, caller.key, result);
}

/** Names the request that the answer belongs to: its record and charge have that id. */
function nameOriginal({ answer }: Call, requestId: string): void {
  answer.setHeader(replayedHeader, 'true');
  answer.setHeader(originalHeader, requestId);
}

function claimed(call: Call, key: ApiKey, result: ClaimResult): Claimed {
  switch (result.kind) {
    case 'run':
      for (const name of [replayedHeader, originalHeader]) call.answer.dropHeader(name);
      return { run: result.run };
    case 'replay':
      nameOriginal(call, result.requestId);
      return { text: withoutMark(call, key, result.text) };
    case 'failed':
      nameOriginal(call, result.requestId);
      throw result.error;
    case 'stopped':
      throw new ClientGoneError();
    case 'runs_elsewhere':
      throw new AppError('conflict', {
        message: 'The request with this Idempotency-Key is still running. Send it again later to get its response.',
        param: 'Idempotency-Key',
        headers: { 'retry-after': String(elsewhereRetrySeconds) },
      });
    case 'not_kept':
      throw new AppError('conflict', {
        message:
          'The request with this Idempotency-Key completed and was billed, but its response could not be stored. Use a new Idempotency-Key to run it again.',
        param: 'Idempotency-Key',
      });
    case 'other_body':
      throw new AppError('unprocessable', {
        message: 'This Idempotency-Key was used for a different request. Use a new Idempotency-Key for each request.',
        param: 'Idempotency-Key',
      });
  }
}

/** Stands before a stored answer of a fallback, so that repetitions name the fallback too. No answer begins so. */
const mark = /^\0fallback (\S+)\n/;

function markOf({ fallbackFor, model }: CallFindings): string {
  return fallbackFor === null || model === null ? '' : `\0fallback ${model.id}\n`;
}

/** @throws AppError conflict if the key may no longer use the model that answered */
function withoutMark({ answer }: Call, { usableModels }: ApiKey, text: string): string {
  const [head = '', id] = mark.exec(text) ?? [];
  if (id === undefined) return text;
  if (usableModels?.has(id) === false) {
    const message =
      'The request with this Idempotency-Key was answered by a model that this API key may no longer use. Use a new Idempotency-Key to run it again.';
    throw new AppError('conflict', { message, param: 'Idempotency-Key' });
  }
  nameFallback(answer, id);
  return text.slice(head.length);
}

/**
 * Prepares the answer of a completed request for storage by the settlement, and for the requests that joined it.
 * @returns the outcome; a failed one if the answer must be given whole or not at all, and cannot be stored
 */
export async function packAnswer({ found, terms }: Call, outcome: Outcome): Promise<Outcome> {
  const { request, reuse } = found;
  if (reuse === null || reuse.idempotentRun === null || request === null) return outcome;
  if (outcome.kind !== 'completed') return outcome;
  const text = textToKeep(found, request, reuse, outcome.last);
  if (text !== null) {
    reuse.answer = text;
    reuse.packed = await compress(Buffer.from(text, 'latin1'));
  } else if (terms.isWholeOrFree) {
    reuse.packed = await compress(bytesToKeep(found, outcome.last));
  }
  return terms.isWholeOrFree ? keepAhead(reuse, reuse.idempotentRun, outcome) : outcome;
}

/** Returns null if the answer is too large. */
function textToKeep(
  found: CallFindings,
  { fields }: InferenceRequest,
  { transcript }: CallReuse,
  last: AnswerText,
): string | null {
  const end = textOf(last, replayBytesMax);
  if (!transcript.whole || end === null) return null;
  const text = markOf(found) + (fields.stream ? transcript.text + end : end);
  return text.length > replayBytesMax ? null : text;
}

function bytesToKeep(found: CallFindings, last: AnswerText): Buffer {
  const blocks = typeof last === 'string' ? [Buffer.from(last, 'latin1')] : last;
  return Buffer.concat([Buffer.from(markOf(found), 'latin1'), ...blocks]);
}

/**
 * Stores a large answer before the settlement. A charged answer must be delivered even if this gateway is killed a
 * moment later, and a settlement that waits on disk does not carry a large answer. If the answer cannot be stored,
 * nothing is charged.
 */
async function keepAhead(reuse: CallReuse, run: IdempotentRun, outcome: Outcome): Promise<Outcome> {
  const { packed } = reuse;
  if (packed === null || packed.length <= carriedAnswerBytesMax) return outcome;
  try {
    await run.keep(packed);
    reuse.keptAhead = true;
    return outcome;
  } catch (error) {
    reuse.answer = null;
    reuse.packed = null;
    // Not converted as for a client that waits: each retry computes the whole answer again.
    const failure = error instanceof AppError ? error : new AppError('internal_error', { cause: error });
    return { ...outcome, kind: 'failed', error: failure, last: '' };
  }
}

/** Returns the claim that the settlement writes for the Idempotency-Key; undefined if the request has none. */
export function settledClaim({ found: { reuse } }: Call): SettledClaim | undefined {
  const run = reuse?.idempotentRun ?? null;
  if (reuse === null || run === null) return undefined;
  return { ...run.claim, keeps: reuse.packed !== null, answer: reuse.keptAhead ? null : reuse.packed };
}

/** Ends the request's claim. The answer is kept if the settlement, which may still run, keeps it. */
export function endIdempotentRun({ requestId }: Call, reuse: CallReuse, reported: Outcome): void {
  const { packed, durable } = reuse;
  const settling = packed === null || durable === null ? null : { answer: packed, durable };
  reuse.idempotentRun?.end(sharedEnd(requestId, reuse, reported), settling);
}

/** Returns the result for the requests that joined this one. */
function sharedEnd(requestId: string, { answer }: CallReuse, reported: Outcome): SharedEnd {
  if (reported.error !== null) return { kind: 'error', requestId, error: reported.error };
  return reported.kind === 'completed' && answer !== null
    ? { kind: 'answer', requestId, text: answer }
    : { kind: 'none' };
}
