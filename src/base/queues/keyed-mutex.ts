/** Runs work of the same key one after the other; work that fails does not stop the next. */
export type Serial = <T>(key: string, work: () => Promise<T>) => Promise<T>;

export function createSerial(): Serial {
  /** The last work of each key. */
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
