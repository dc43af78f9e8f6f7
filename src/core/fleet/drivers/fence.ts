/**
 * The right to change what runs. A leader that was frozen and wakes has lost it without knowing: a driver asks
 * immediately before every change, and does nothing where the answer is no.
 */
export interface Fence {
  /** Grows with every change of leaders; written on whatever is made, so that a successor can tell who made it. */
  readonly epoch: bigint;
  /** Asks the store that knows; false also when it cannot be asked. */
  holds(): Promise<boolean>;
}

/** A change was requested by a gateway that leads no more, or that cannot make sure that it still does. */
export class FenceLostError extends Error {
  constructor() {
    super('this gateway leads the fleet no more, or Postgres did not say in time that it does: nothing was changed');
    this.name = 'FenceLostError';
  }
}

/** To be awaited immediately before every change. @throws FenceLostError */
export async function requireFence(fence: Fence): Promise<void> {
  if (!(await fence.holds())) throw new FenceLostError();
}
