import { nearest } from '#base/edit-distance.ts';

/** Returns ` (did you mean "x"?)`; empty if no candidate is near. */
export function didYouMean(word: string, candidates: readonly string[], before = ''): string {
  const meant = nearest(word, candidates);
  return meant === null ? '' : ` (did you mean "${before}${meant}"?)`;
}
