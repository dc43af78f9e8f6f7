/** Whether work takes longer than that; it goes on. */
export function isLate(work: Promise<void>, waitMs: number): Promise<boolean> {
  return new Promise((resolve) => {
    const timer = setTimeout(() => resolve(true), waitMs);
    void work.finally(() => {
      clearTimeout(timer);
      resolve(false);
    });
  });
}
