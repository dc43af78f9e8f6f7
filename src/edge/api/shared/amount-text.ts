import { z } from '@hono/zod-openapi';
import { parseDecimal, PICO_DIGITS } from '#base/money.ts';

/** Largest amount: far above any payment, and far below the limit of the ledger's columns. */
const usdMax = 1_000_000_000_000n;
const picoUsdMax = usdMax * 10n ** BigInt(PICO_DIGITS);

interface AmountRule {
  /** True if negative decimals are also accepted. */
  readonly isSigned: boolean;
  /** Most decimal places; those of a pico-dollar if absent. */
  readonly places?: number;
  readonly example: string;
  readonly description: string;
}

/** Returns the schema of an amount in USD, parsed to pico-dollars and never zero. */
export function amountText({ isSigned, places = PICO_DIGITS, example, description }: AmountRule) {
  const wanted = `a string such as "${example}"`;
  return z
    .union([z.string(), z.number()], {
      error: ({ input }) => (input === undefined ? 'is missing' : `must be ${wanted}`),
    })
    .transform((value, context): bigint => {
      const problem = (message: string): never => {
        context.addIssue({ code: 'custom', message });
        return z.NEVER;
      };
      if (typeof value === 'number') return problem(`must be ${wanted}: a JSON number may lose digits`);
      const units = parseDecimal(value, places);
      if (units === null) return problem(`must be a plain decimal such as "${example}" with at most ${places} places`);
      const picoUsd = units * 10n ** BigInt(PICO_DIGITS - places);
      if (isSigned && picoUsd === 0n) return problem('must not be 0');
      if (!isSigned && picoUsd <= 0n) return problem('must be above 0');
      if (picoUsd > picoUsdMax) return problem(`must be at most ${usdMax}`);
      return picoUsd >= -picoUsdMax ? picoUsd : problem(`must be at least -${usdMax}`);
    })
    .openapi({
      type: 'string',
      pattern: `^${isSigned ? '-?' : ''}[0-9]{1,40}(\\.[0-9]{1,${places}})?$`,
      example,
      description,
    });
}
