/**
 * Returns the result of the work, or of `otherwise` if the work takes longer than `waitMs` milliseconds. The work goes
 * on then, and its result or rejection is ignored.
 * @param otherwise called only if the work is late; it may throw
 * @throws what the work rejects with in time, and what `otherwise` throws
 */
export async function within<T, L>(work: PromiseLike<T>, waitMs: number, otherwise: () => L): Promise<T | Awaited<L>> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, waitMs);
  }).then(otherwise);
  try {
    return await Promise.race([work, late]);
  } finally {
    clearTimeout(timer);
  }
}
