/**
 * The balance of one kind of tokens of one model: what its engines counted against what the books expect of them, hour
 * by hour. An engine counts a token when it makes it, the books count a request in the hour of its admission; what was
 * under way at the end of an hour is carried into the next one.
 */
export interface BalanceHour {
  readonly counted: number;
  readonly expected: number;
  /** Tokens of requests under way at the hour's end: at most so many of its expected ones are counted later. */
  readonly carryMax: number;
  /** The engines may have counted so many more than the books know; Infinity where that has no bound. */
  readonly moreMax: number;
  /** They may have counted so many fewer, for good. */
  readonly fewerMax: number;
}

/**
 * @param openMax tokens of requests that were under way when the first hour began
 * @returns for each hour the tokens that nothing explains: above zero where the engines counted more than the books
 *   have, below zero where they counted less
 */
export function findUnexplained(hours: readonly BalanceHour[], openMax: number): readonly number[] {
  // What may have been carried in: an interval, since it is only known what was under way, not how far it had come.
  let least = 0;
  let most = openMax;
  return hours.map(({ counted, expected, carryMax, moreMax, fewerMax }) => {
    const difference = counted - expected;
    const carryLeast = least - fewerMax - difference;
    const carryMost = most + moreMax - difference;
    least = Math.max(0, carryLeast);
    most = Math.min(carryMax, carryMost);
    if (least <= most) return 0;
    const unexplained = carryMost < 0 ? -carryMost : carryMax - carryLeast;
    least = 0;
    most = carryMax;
    return unexplained;
  });
}
