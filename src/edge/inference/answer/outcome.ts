import { AppError } from '#base/errors.ts';
import { type KnownUsage, noUsage, type OutcomeKind, type Usage, type UsageSource } from '#core/metering/metering.ts';
import type { AnswerText, WriteAnswer } from './large-answer.ts';
import { ClientGoneError, toAppError } from '#edge/http/http.ts';
import { clientLeft, type Stop } from './stop.ts';

/** The result of a request, and the bytes still to be sent once the record is written. */
export interface Outcome {
  readonly kind: OutcomeKind;
  /** Why there is no complete answer; null if there is one, or if the client has left. */
  readonly error: AppError | null;
  /** An oddity of a complete answer; null for none. */
  readonly remark: string | null;
  /** The last frames of a stream, or the whole JSON answer. */
  readonly last: AnswerText;
  /** Writes `last` with what the request is billed; null for an answer that shows no bill of its own. */
  readonly writeBill: WriteAnswer | null;
  readonly usage: Usage;
  readonly usageSource: UsageSource;
  /** The fault of the engine's last count; null without a fault. */
  readonly countFault: KnownUsage['countFault'];
  /** No part of an answer has arrived, so another replica may be asked. */
  readonly retry: boolean;
  /**
   * The model gave no answer, by no fault of the request, and the client has nothing: another model may be asked. True
   * in more cases than `retry`, which also spares an engine that was only silent.
   */
  readonly unanswered: boolean;
  /** The replica could not be reached. */
  readonly unreachable: boolean;
  /** Status with which the engine rejected a request that is not at fault; null if it did not. */
  readonly refusedWith: number | null;
  /** The engine reported a failure after a part was sent, so that no other replica can show whose fault it is. */
  readonly isDoubtful: boolean;
}

/** Creates an outcome. The defaults mean: no answer, no tokens counted, no retry. */
export function outcomeOf({
  kind,
  error,
  remark = null,
  last = '',
  writeBill = null,
  usage = noUsage,
  usageSource = 'none',
  countFault = null,
  retry = false,
  unanswered = false,
  unreachable = false,
  refusedWith = null,
  isDoubtful = false,
}: Pick<Outcome, 'kind' | 'error'> & Partial<Outcome>): Outcome {
  return {
    kind,
    error,
    remark,
    last,
    writeBill,
    usage,
    usageSource,
    countFault,
    retry,
    unanswered,
    unreachable,
    refusedWith,
    isDoubtful,
  };
}

/** An answer that costs nothing and counts nothing. */
export const completedBy = (last: string): Outcome => outcomeOf({ kind: 'completed', error: null, last });

export const stoppedBy = ({ kind, error }: Stop): Outcome => outcomeOf({ kind, error });

export const failedBy = (error: AppError): Outcome => outcomeOf({ kind: 'failed', error });

/**
 * Converts any thrown value into the error for an inference client. An unavailable database becomes
 * billing_unavailable: nothing is answered, and nothing is charged.
 */
export function toInferenceError(error: unknown): AppError {
  const failure = toAppError(error);
  if (failure.code !== 'database_unavailable') return failure;
  return new AppError('billing_unavailable', { cause: failure.cause });
}

/** Converts an error that a step has thrown into an outcome. */
export function thrownBy({ reason }: { readonly reason: Stop | null }, error: unknown): Outcome {
  if (reason !== null) return stoppedBy(reason);
  return error instanceof ClientGoneError ? stoppedBy(clientLeft) : failedBy(toInferenceError(error));
}

/**
 * Returns an error in place of the answer. The record still waits for the database and is charged later, so the message
 * must not claim that nothing was charged.
 */
export function unrecordedCharge(outcome: Outcome): Outcome {
  const message =
    'The response is complete but not delivered, because its charge cannot be recorded at the moment; it is charged later. ' +
    'If the request has an Idempotency-Key, send it again to get the response.';
  const error = new AppError('billing_unavailable', { message, headers: { 'retry-after': '2' } });
  return { ...outcome, kind: 'failed', error, last: '' };
}

/** Returns the error for a request that was answered and charged elsewhere meanwhile. A repetition gets that answer. */
export function chargedBefore(): Outcome {
  const message =
    'Another attempt answered the request with this Idempotency-Key in the meantime. Send it again to get that response.';
  return failedBy(new AppError('conflict', { message, headers: { 'retry-after': '1' } }));
}
