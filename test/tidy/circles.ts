/**
 * Finds circles in a graph of files. Every file that is in a circle is in one of the results, as short as it is.
 * @param imports file → the files that it imports
 * @returns each circle as the way around, with the first file again at its end
 */
export function findCircles(imports: ReadonlyMap<string, readonly string[]>): string[][] {
  const circles: string[][] = [];
  const told = new Set<string>();
  for (const file of imports.keys()) {
    if (told.has(file)) continue;
    const circle = wayBack(file, imports);
    if (circle === null) continue;
    circles.push(circle);
    for (const one of circle) told.add(one);
  }
  return circles;
}

/** The shortest way from a file back to itself; null when there is none. */
function wayBack(start: string, imports: ReadonlyMap<string, readonly string[]>): string[] | null {
  const cameFrom = new Map<string, string>();
  const queue = [start];
  // The queue grows while it is read: the nearest files come first.
  for (const file of queue) {
    for (const imported of imports.get(file) ?? []) {
      if (imported === start) return [...wayTo(file, start, cameFrom), start];
      if (cameFrom.has(imported)) continue;
      cameFrom.set(imported, file);
      queue.push(imported);
    }
  }
  return null;
}

function wayTo(file: string, start: string, cameFrom: ReadonlyMap<string, string>): string[] {
  const way = [file];
  for (let at = file; at !== start;) {
    at = cameFrom.get(at) ?? start;
    way.unshift(at);
  }
  return way;
}
