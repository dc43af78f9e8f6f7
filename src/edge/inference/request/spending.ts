import type { IncomingMessage } from 'node:http';
import { AppError } from '#base/errors.ts';
import { formatUsd, parseDecimal, PICO_DIGITS } from '#base/money.ts';
import type { CapRefusal } from '#core/admission/admission.ts';

/** Headers in which a caller limits or asks what a request costs. */
export interface SpendingOptions {
  /** Most that the caller pays, in pico-dollars; null without a cap. */
  readonly capPicoUsd: bigint | null;
  /** The request is a dry run. */
  readonly isDry: boolean;
}

export const maxCostHeader = 'x-headgate-max-cost';
const dryRunHeader = 'x-headgate-dry-run';
const maxLength = 32;

const invalid = (param: string, message: string): AppError => new AppError('invalid_value', { message, param });

/** @throws AppError invalid_value, the header in `param` */
export function readSpendingOptions({ headers }: IncomingMessage): SpendingOptions {
  return { capPicoUsd: readMaxCost(headers[maxCostHeader]), isDry: readDryRun(headers[dryRunHeader]) };
}

function readMaxCost(given: string | string[] | undefined): bigint | null {
  if (given === undefined) return null;
  const value = typeof given === 'string' && given.length <= maxLength ? parseDecimal(given, PICO_DIGITS) : null;
  if (value !== null && value > 0n) return value;
  const wanted = `a decimal number of US dollars above 0 with at most ${PICO_DIGITS} decimal places, such as 0.01`;
  throw invalid(maxCostHeader, `${maxCostHeader} must be ${wanted}.`);
}

function readDryRun(given: string | string[] | undefined): boolean {
  if (given === undefined || given === 'false') return false;
  if (given === 'true') return true;
  throw invalid(dryRunHeader, `${dryRunHeader} must be true or false.`);
}

/** Returns the error for a cap that pays for too little. */
export function capError({ capPicoUsd, promptPicoUsd, neededPicoUsd }: CapRefusal): AppError {
  const isPromptTooExpensive = promptPicoUsd > capPicoUsd;
  const part = isPromptTooExpensive ? 'the prompt' : 'the prompt with one output token';
  const cost = formatUsd(isPromptTooExpensive ? promptPicoUsd : neededPicoUsd);
  const message = `${maxCostHeader} is ${formatUsd(capPicoUsd)} USD, but ${part} is estimated at ${cost} USD. Raise the limit, or shorten the prompt.`;
  return invalid(maxCostHeader, message);
}
