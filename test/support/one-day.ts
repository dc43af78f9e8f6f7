const dayMs = 86_400_000;
const enoughMs = 60_000;

/**
 * Waits for the next day of UTC where this one is nearly over, for tests of what is counted by a single day or month:
 * limits and budgets.
 */
export async function enoughOfTheDay(): Promise<void> {
  const leftMs = dayMs - (Date.now() % dayMs);
  if (leftMs < enoughMs) await new Promise((resolve) => setTimeout(resolve, leftMs + 1000));
}
