import fc from 'fast-check';

/** One of these. */
export const pick = <T>(...values: readonly T[]): fc.Arbitrary<T> => fc.constantFrom(...values);

/** One of all that stand in these rows, which are as long as lines are. */
export const pickOf = <T>(...rows: readonly (readonly T[])[]): fc.Arbitrary<T> => fc.constantFrom(...rows.flat());

/** Nearly always the usual. @param weight of the usual beside 1 */
export function mostly<T>(usual: fc.Arbitrary<T>, other: fc.Arbitrary<T>, weight = 4): fc.Arbitrary<T> {
  return fc.oneof({ weight, arbitrary: usual }, { weight: 1, arbitrary: other });
}
