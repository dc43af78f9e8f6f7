/**
 * Reports work that takes longer than `waitMs`. The work goes on, and a rejection after that time is ignored.
 * @throws what the work rejects with in time
 */
export async function isLate(work: Promise<unknown>, waitMs: number): Promise<boolean> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<true>((resolve) => {
    timer = setTimeout(resolve, waitMs, true);
  });
  try {
    return await Promise.race([work.then(() => false), late]);
  } finally {
    clearTimeout(timer);
  }
}
