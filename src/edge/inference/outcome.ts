import { AppError } from '#base/errors.ts';
import { type KnownUsage, noUsage, type OutcomeKind, type Usage, type UsageSource } from '#core/metering/metering.ts';
import type { AnswerText } from './large-answer.ts';
import { ClientGoneError, toAppError } from '#edge/http/http.ts';
import { clientLeft, type Stop } from './stop.ts';

/** How a request ended, and what is still to be sent once that is in the books. */
export interface Outcome {
  readonly kind: OutcomeKind;
  /** Why there is no complete answer; null when there is one, and when the client has left. */
  readonly error: AppError | null;
  /** What was odd about an answer that is complete; null for nothing. */
  readonly remark: string | null;
  /** The last frames of a stream, or the whole JSON answer. */
  readonly last: AnswerText;
  /** Writes `last` with what the request cost; null where the client did not ask for that. */
  readonly writeCost: ((costText: string) => AnswerText) | null;
  readonly usage: Usage;
  readonly usageSource: UsageSource;
  /** What is wrong with the engine's last count; null where nothing is. */
  readonly countFault: KnownUsage['countFault'];
  /** Nothing of an answer has come, so another replica may be asked. */
  readonly retry: boolean;
  /**
   * The model gave nothing, by no fault of the request, and the client has nothing: another model may be asked. Wider
   * than `retry`, which also spares an engine that has only been silent.
   */
  readonly unanswered: boolean;
  /** The replica could not be reached. */
  readonly unreachable: boolean;
  /** The status by which the engine refused a request that is not at fault; null: it did not. */
  readonly refusedWith: number | null;
  /** The engine itself said that it failed, when a part had left and no other replica could show whose fault that is. */
  readonly isDoubtful: boolean;
}

/** An outcome; what is not given is no answer, nothing counted, and nothing to be tried again. */
export function outcomeOf({
  kind,
  error,
  remark = null,
  last = '',
  writeCost = null,
  usage = noUsage,
  usageSource = 'none',
  countFault = null,
  retry = false,
  unanswered = false,
  unreachable = false,
  refusedWith = null,
  isDoubtful = false,
}: Pick<Outcome, 'kind' | 'error'> & Partial<Outcome>): Outcome {
  const counted = { usage, usageSource, countFault };
  const told = { kind, error, remark, last, writeCost };
  return { ...told, ...counted, retry, unanswered, unreachable, refusedWith, isDoubtful };
}

/** An answer that costs nothing and counts nothing. */
export const completedBy = (last: string): Outcome => outcomeOf({ kind: 'completed', error: null, last });

export const stoppedBy = ({ kind, error }: Stop): Outcome => outcomeOf({ kind, error });

export const failedBy = (error: AppError): Outcome => outcomeOf({ kind: 'failed', error });

/** What any thrown value means to who asks a model: without the books nothing is answered, and nothing is charged. */
export function toInferenceError(error: unknown): AppError {
  const failure = toAppError(error);
  if (failure.code !== 'database_unavailable') return failure;
  return new AppError('billing_unavailable', { cause: failure.cause });
}

/** What an error means that a step has thrown. */
export function thrownBy({ reason }: { readonly reason: Stop | null }, error: unknown): Outcome {
  if (reason !== null) return stoppedBy(reason);
  return error instanceof ClientGoneError ? stoppedBy(clientLeft) : failedBy(toInferenceError(error));
}

/** The record still waits for the books to come back, and is charged then: this must not say that nothing was. */
export function unbooked(outcome: Outcome): Outcome {
  const message = 'The answer is complete, but the books cannot be written at the moment; it is charged when they can.';
  const error = new AppError('billing_unavailable', { message, headers: { 'retry-after': '2' } });
  return { ...outcome, kind: 'failed', error, last: '' };
}

/** The same request was answered and charged elsewhere meanwhile: whoever asks again gets that answer. */
export function chargedBefore(): Outcome {
  const message = 'The request with this Idempotency-Key was answered elsewhere meanwhile; ask again for its answer.';
  return failedBy(new AppError('conflict', { message, headers: { 'retry-after': '1' } }));
}
