/**
 * The balance of one kind of tokens of one model: the engines' counts against the expectation from the records, hour by
 * hour. An engine counts a token when it makes the token, the records count a request in the hour of its admission;
 * tokens of requests in progress at the end of an hour are carried into the next one.
 */
export interface BalanceHour {
  readonly counted: number;
  readonly expected: number;
  /** Tokens of requests in progress at the hour's end: at most this many of the expected tokens are counted later. */
  readonly carryMax: number;
  /** Maximum tokens that the engines may have counted beyond the records; Infinity without a bound. */
  readonly moreMax: number;
  /** Maximum tokens by which the engines may permanently have counted less. */
  readonly fewerMax: number;
}

/**
 * Finds tokens without an explanation.
 * @param openMax tokens of requests that were in progress when the first hour began
 * @returns for each hour the unexplained tokens: above zero if the engines counted more than the records, below zero if
 * they counted less
 */
export function findUnexplained(hours: readonly BalanceHour[], openMax: number): readonly number[] {
  // Bounds of the tokens carried in: an interval, since it is known which requests were in progress, but not how far
  // they were.
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
