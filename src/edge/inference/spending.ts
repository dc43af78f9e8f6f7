import type { IncomingMessage } from 'node:http';
import { AppError } from '#base/errors.ts';
import { formatUsd, parseDecimal, PICO_DIGITS } from '#base/money.ts';
import type { PriceVersion } from '#core/catalog/catalog.ts';
import type { RequestFields } from './fields.ts';

/** What a request may cost, as its caller wants it; the headers that say so. */
export interface SpendingOptions {
  /** Null without a cap. */
  readonly maxCostPicoUsd: bigint | null;
  /** Only asks what would happen. */
  readonly dryRun: boolean;
}

const maxCostHeader = 'x-headgate-max-cost';
const dryRunHeader = 'x-headgate-dry-run';
const maxLength = 32;

const invalid = (param: string, message: string): AppError => new AppError('invalid_value', { message, param });

/** @throws AppError invalid_value, the header in `param` */
export function readSpendingOptions({ headers }: IncomingMessage): SpendingOptions {
  return { maxCostPicoUsd: readMaxCost(headers[maxCostHeader]), dryRun: readDryRun(headers[dryRunHeader]) };
}

function readMaxCost(given: string | string[] | undefined): bigint | null {
  if (given === undefined) return null;
  const value = typeof given === 'string' && given.length <= maxLength ? parseDecimal(given, PICO_DIGITS) : null;
  if (value !== null && value > 0n) return value;
  throw invalid(maxCostHeader, `${maxCostHeader} must be a plain decimal of US dollars above 0, such as 0.01.`);
}

function readDryRun(given: string | string[] | undefined): boolean {
  if (given === undefined || given === 'false') return false;
  if (given === 'true') return true;
  throw invalid(dryRunHeader, `${dryRunHeader} must be true or false.`);
}

/** Output tokens counted for a request that names no limit, until its real count is known. */
const outputTokensGuess = 256;
const bytesPerToken = 4;

/** A prompt's tokens as they are before anybody has counted them: the body's bytes over 4. */
function estimatePromptTokens(fields: RequestFields): number {
  return Math.ceil(fields.text.length / bytesPerToken);
}

/** Output tokens of all choices; `perChoiceMax` is what the request may have of each. */
function estimateOutputTokens(fields: RequestFields, perChoiceMax: number): number {
  return Math.min(fields.outputTokensMax ?? outputTokensGuess, perChoiceMax) * fields.choices * fields.prompts;
}

/** What is reserved of the limits on tokens, input and output together. */
export function estimateTokens(fields: RequestFields, perChoiceMax: number): number {
  return estimatePromptTokens(fields) + estimateOutputTokens(fields, perChoiceMax);
}

/** What the request costs if the estimate is right, in pico-dollars. */
export function estimateCost(fields: RequestFields, price: PriceVersion, perChoiceMax: number): bigint {
  return promptCost(fields, price) + BigInt(estimateOutputTokens(fields, perChoiceMax)) * price.outputPerMTokMicroUsd;
}

function promptCost(fields: RequestFields, price: PriceVersion): bigint {
  return BigInt(estimatePromptTokens(fields)) * price.inputPerMTokMicroUsd;
}

/**
 * Output tokens per choice that a cap pays for beside the prompt's estimate.
 * @param outputTokensMax what the request may have without the cap
 * @returns null where the cap pays for all of them
 * @throws AppError invalid_value when it does not pay for the prompt and one token per choice
 */
export function capOutput(
  fields: RequestFields,
  price: PriceVersion,
  maxCostPicoUsd: bigint | null,
  outputTokensMax: number,
): number | null {
  if (maxCostPicoUsd === null) return null;
  const prompt = promptCost(fields, price);
  const step = BigInt(fields.choices * fields.prompts) * price.outputPerMTokMicroUsd;
  const needed = prompt + (outputTokensMax > 0 ? step : 0n);
  if (needed > maxCostPicoUsd) {
    const part = prompt > maxCostPicoUsd ? 'its prompt alone' : 'its prompt and one token';
    const message = `${maxCostHeader} is ${formatUsd(maxCostPicoUsd)} USD, but ${part} is estimated at ${formatUsd(prompt > maxCostPicoUsd ? prompt : needed)} USD.`;
    throw invalid(maxCostHeader, message);
  }
  if (step === 0n) return null;
  const affordable = (maxCostPicoUsd - prompt) / step;
  return affordable < BigInt(outputTokensMax) ? Number(affordable) : null;
}
