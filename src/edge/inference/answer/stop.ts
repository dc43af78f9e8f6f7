import { AppError } from '#base/errors.ts';
import type { RequestHold } from '#core/admission/admission.ts';
import { ClientGoneError } from '#edge/http/http.ts';
import { budgetUsedUp } from './budget-error.ts';

/** Why a request ends before its answer does. */
export interface Stop {
  readonly kind: 'aborted' | 'ended';
  /** The error that the client gets; null if the client has left. */
  readonly error: AppError | null;
}

export const clientLeft: Stop = { kind: 'aborted', error: null };

/**
 * Ends one request early: the client left, the key was revoked, or the gateway stops. A stop interrupts the step that
 * waits at that moment; all other steps check for a stop before they continue.
 */
export class StopControl {
  #reason: Stop | null = null;
  #listener: ((reason: Stop) => void) | null = null;
  #outlivesClient = false;

  /** Null until something ends the request. */
  get reason(): Stop | null {
    return this.#reason;
  }

  get outlivesClient(): boolean {
    return this.#outlivesClient;
  }

  /** Makes the request continue if its client leaves: a repetition will ask for the answer. */
  outliveClient(): void {
    this.#outlivesClient = true;
  }

  /** Only the first call has an effect. */
  stop(reason: Stop): void {
    if (this.#reason !== null) return;
    this.#reason = reason;
    this.#listener?.(reason);
  }

  clientLeft(): void {
    if (!this.#outlivesClient) this.stop(clientLeft);
  }

  /** @throws the error that the client gets, or ClientGoneError */
  throwIfStopped(): void {
    if (this.#reason !== null) throw this.#reason.error ?? new ClientGoneError();
  }

  /** Sets or removes the only listener. It is not called for an earlier stop, which callers check for themselves. */
  listen(listener: ((reason: Stop) => void) | null): void {
    this.#listener = listener;
  }

  /**
   * Waits for work whose signal aborts when the request must end. The work settles in its own way after that, so that a
   * result that arrives at that very moment is not lost.
   * @throws as `throwIfStopped`, before the work begins
   */
  async untilStopped<T>(work: (signal: AbortSignal) => Promise<T>): Promise<T> {
    this.throwIfStopped();
    const waiting = new AbortController();
    this.listen(() => waiting.abort());
    try {
      return await work(waiting.signal);
    } finally {
      this.listen(null);
    }
  }
}

/**
 * Returns the stop for a stream whose hold is used up. The stream ends even if the state of wallet and budgets is
 * unknown.
 */
export function outOfFunds(hold: Pick<RequestHold, 'exhausted' | 'isCapped' | 'isUnknown'>): Stop {
  if (hold.isCapped) {
    const message = 'x-headgate-max-cost is used up, so the response ended early.';
    return { kind: 'ended', error: new AppError('insufficient_funds', { message, reason: 'max_cost' }) };
  }
  if (hold.isUnknown) {
    const message =
      'The amount held for this response is used up, and the balance is unknown at the moment, so the response ended early.';
    return { kind: 'ended', error: new AppError('billing_unavailable', { message, reason: 'wallet' }) };
  }
  if (hold.exhausted !== null) return { kind: 'ended', error: budgetUsedUp(hold.exhausted) };
  const message = 'The balance is used up, so the response ended early.';
  return { kind: 'ended', error: new AppError('insufficient_funds', { message, reason: 'wallet' }) };
}
