import { nearest } from '#base/nearest.ts';

/** ` (did you mean "x"?)`, or nothing. */
export function didYouMean(word: string, candidates: readonly string[], before = ''): string {
  const meant = nearest(word, candidates);
  return meant === null ? '' : ` (did you mean "${before}${meant}"?)`;
}
