/**
 * The right to change engines. A leader that was frozen may have lost the right without noticing: a driver checks it
 * immediately before every change, and changes nothing if it is lost.
 */
export interface Fence {
  /**
   * Grows with every change of leaders; recorded on everything that a leader creates, so that its successor can tell.
   */
  readonly epoch: bigint;
  /** Asks the store; also false if the store does not answer. */
  holds(): Promise<boolean>;
}

/** Thrown if the gateway that requested a change does not lead any more, or cannot verify that it leads. */
export class FenceLostError extends Error {
  constructor() {
    super('this gateway is no longer the leader, or PostgreSQL did not confirm its lease in time; nothing was changed');
    this.name = 'FenceLostError';
  }
}

/** Must be awaited immediately before every change. @throws FenceLostError */
export async function requireFence(fence: Fence): Promise<void> {
  if (!(await fence.holds())) throw new FenceLostError();
}
