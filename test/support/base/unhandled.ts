/** Runs what is given, and returns the rejections that nobody handled meanwhile. */
export async function unhandledIn(run: () => Promise<void>): Promise<readonly unknown[]> {
  const unhandled: unknown[] = [];
  const listeners = process.listeners('unhandledRejection');
  process.removeAllListeners('unhandledRejection').on('unhandledRejection', (reason) => unhandled.push(reason));
  try {
    await run();
    // Node reports a rejection once the microtasks of its turn are through.
    await new Promise((resolve) => setImmediate(resolve));
    return unhandled;
  } finally {
    process.removeAllListeners('unhandledRejection');
    for (const listener of listeners) process.on('unhandledRejection', listener);
  }
}
