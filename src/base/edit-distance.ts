/** Suggests the word that somebody may have meant. */

/**
 * The candidate that is nearest: one that the word begins, or the one with the fewest letters to change, of which
 * every third may be wrong. Null where none is near.
 */
export function nearest(word: string, candidates: readonly string[]): string | null {
  const begun = candidates.filter((candidate) => word.length > 1 && candidate.startsWith(word));
  if (begun.length === 1) return begun[0] ?? null;
  const found = candidates
    .map((candidate) => ({ candidate, distance: distance(word.toLowerCase(), candidate.toLowerCase()) }))
    .filter(({ candidate, distance: letters }) => letters <= Math.max(1, Math.floor(candidate.length / 3)))
    .toSorted((a, b) => a.distance - b.distance);
  return found[0]?.candidate ?? null;
}

/**
 * Letters to insert, remove, change or exchange with their neighbour, so that one word becomes the other (optimal
 * string alignment distance).
 */
function distance(a: string, b: string): number {
  const rows: number[][] = [Array.from({ length: b.length + 1 }, (_, column) => column)];
  const at = (row: number, column: number): number => rows[row]?.[column] ?? 0;
  for (let i = 1; i <= a.length; i += 1) {
    const row = [i];
    rows.push(row);
    for (let j = 1; j <= b.length; j += 1) {
      const changed = at(i - 1, j - 1) + (a[i - 1] === b[j - 1] ? 0 : 1);
      const isExchange = i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1];
      const exchanged = isExchange ? at(i - 2, j - 2) + 1 : Infinity;
      row.push(Math.min(at(i - 1, j) + 1, at(i, j - 1) + 1, changed, exchanged));
    }
  }
  return at(a.length, b.length);
}
