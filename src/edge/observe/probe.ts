/** Whether a store is there, as it was found last. */
export interface Probe {
  readonly isUp: boolean;
  /** Asks the store once; never rejects. While a question is unanswered, no second one is sent. */
  ask(): Promise<void>;
}

/** @param timeoutMs an answer that takes longer says that the store is away: drivers may wait for ever */
export function createProbe(question: () => Promise<unknown>, timeoutMs: number): Probe {
  let isUp = false;
  let pending: Promise<void> | null = null;
  return {
    get isUp() {
      return isUp;
    },
    async ask() {
      pending ??= question()
        .then(
          () => void (isUp = true),
          () => void (isUp = false),
        )
        .finally(() => {
          pending = null;
        });
      const running = pending;
      let late: NodeJS.Timeout | undefined;
      const isLate = new Promise<true>((resolve) => {
        late = setTimeout(() => resolve(true), timeoutMs).unref();
      });
      if ((await Promise.race([running, isLate])) === true) isUp = false;
      clearTimeout(late);
    },
  };
}
