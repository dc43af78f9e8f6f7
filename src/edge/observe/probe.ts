import { isLate } from '#base/is-late.ts';

/** Whether a store is there, as it was found last. */
export interface Probe {
  readonly isUp: boolean;
  /** Whether it is there, or was so long ago at most. */
  wasUpWithin(ms: number): boolean;
  /** Asks once; never rejects. A question that was not answered is not asked again until it is. */
  ask(): Promise<void>;
}

/** @param timeoutMs an answer that takes longer says that the store is away: drivers may wait for ever */
export function createProbe(question: () => Promise<unknown>, timeoutMs: number): Probe {
  let isUp = false;
  let lastUpMs = -Infinity;
  let pending: Promise<void> | null = null;
  return {
    get isUp() {
      return isUp;
    },
    wasUpWithin: (ms) => isUp || performance.now() - lastUpMs < ms,
    async ask() {
      pending ??= question()
        .then(
          () => {
            isUp = true;
            lastUpMs = performance.now();
          },
          () => void (isUp = false),
        )
        .finally(() => {
          pending = null;
        });
      if (await isLate(pending, timeoutMs)) isUp = false;
    },
  };
}
