import { AppError } from '#base/errors.ts';
import type { RequestHold } from '#core/admission/admission.ts';
import { ClientGoneError } from '#edge/http/http.ts';
import { budgetUsedUp } from './budget-error.ts';

/** Why a request ends before its answer does. */
export interface Stop {
  readonly kind: 'aborted' | 'ended';
  /** The error that the client gets; null where it has left. */
  readonly error: AppError | null;
}

export const clientLeft: Stop = { kind: 'aborted', error: null };

/**
 * Ends one request early: its client left, its key was revoked, the gateway stops. The step that waits at that moment
 * is interrupted; the others ask before they go on.
 */
export class StopControl {
  #reason: Stop | null = null;
  #listener: ((reason: Stop) => void) | null = null;
  #outlivesClient = false;

  /** Null while nothing wants the request to end. */
  get reason(): Stop | null {
    return this.#reason;
  }

  get outlivesClient(): boolean {
    return this.#outlivesClient;
  }

  /** From now on a client that leaves does not end the request: a repetition will ask for its answer. */
  outliveClient(): void {
    this.#outlivesClient = true;
  }

  /** The first call counts. */
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

  /** Sets the one listener, or takes it away. Who sets it has asked before: it is not called for what was. */
  listen(listener: ((reason: Stop) => void) | null): void {
    this.#listener = listener;
  }

  /**
   * Waits for work whose signal aborts when the request is to end. The work itself then settles as it sees fit, so that
   * what it was given at that very moment is not lost.
   * @throws as `throwIfStopped`, before anything is begun
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

/** Where nobody knows what wallet and budgets have, a stream ends with its hold all the same. */
export function outOfFunds(hold: Pick<RequestHold, 'exhausted' | 'isCapped' | 'isUnknown'>): Stop {
  if (hold.isCapped) {
    const message = 'x-headgate-max-cost is used up; the answer ends here.';
    return { kind: 'ended', error: new AppError('insufficient_funds', { message, reason: 'max_cost' }) };
  }
  if (hold.isUnknown) {
    const message = 'What this answer may cost is used up, and the balance is not known at the moment; it ends here.';
    return { kind: 'ended', error: new AppError('billing_unavailable', { message, reason: 'wallet' }) };
  }
  if (hold.exhausted !== null) return { kind: 'ended', error: budgetUsedUp(hold.exhausted) };
  const message = 'The balance is used up; the answer ends here.';
  return { kind: 'ended', error: new AppError('insufficient_funds', { message, reason: 'wallet' }) };
}
