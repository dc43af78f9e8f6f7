/** Time for which samples are kept. */
export const keptMs = 3_600_000;

export interface Sample {
  /** Milliseconds since the Unix epoch. */
  readonly atMs: number;
}

/**
 * Adds a sample. The sample before it is replaced if it came sooner after its own predecessor than `everyMs`, so that
 * frequent readers do not make the list longer.
 */
export function keep<Kept extends Sample>(samples: Kept[], sample: Kept, everyMs: number): void {
  const previous = samples.at(-2);
  if (previous !== undefined && sample.atMs - previous.atMs < everyMs) samples.pop();
  samples.push(sample);
  const first = samples.findIndex(({ atMs }) => atMs > sample.atMs - keptMs);
  if (first > 0) samples.splice(0, first);
}

/** True if the newest sample is older than all samples may be. */
export function isOutdated(samples: readonly Sample[], nowMs: number): boolean {
  return (samples.at(-1)?.atMs ?? -Infinity) <= nowMs - keptMs;
}
