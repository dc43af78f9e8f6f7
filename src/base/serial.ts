/** Runs work one after the other where it bears the same key; what failed holds up nothing. */
export type Serial = <T>(key: string, work: () => Promise<T>) => Promise<T>;

export function createSerial(): Serial {
  /** The end of each line. */
  const lines = new Map<string, Promise<unknown>>();
  return async (key, work) => {
    const before = lines.get(key) ?? Promise.resolve();
    const mine = before.then(work, work);
    lines.set(
      key,
      mine.catch(() => undefined),
    );
    return mine;
  };
}
