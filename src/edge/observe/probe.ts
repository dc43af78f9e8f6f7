import { isLate } from '#base/is-late.ts';

/** The last known availability of a store. */
export interface Probe {
  readonly isUp: boolean;
  /** True if the store is available, or was within the last `ms` milliseconds. */
  wasUpWithin(ms: number): boolean;
  /** Probes once; never rejects. Does not probe again while a probe is pending. */
  ask(): Promise<void>;
}

/** @param timeoutMs longer answers mean that the store is unavailable: drivers may wait indefinitely */
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
