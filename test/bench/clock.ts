/** The machine's monotonic clock in milliseconds: the same for all processes, unlike performance.now(). */
export function monotonicMs(): number {
  const [seconds, nanoseconds] = process.hrtime();
  return seconds * 1000 + nanoseconds / 1e6;
}
