import { formatUsd, parseDecimal, PICO_DIGITS } from '#base/money.ts';
import type { SumsAnswer } from '#edge/portal/ui/ui.ts';

/** Adds the usage of several groups, exact to the pico-dollar. */
export function addSums(groups: readonly SumsAnswer[]): SumsAnswer {
  const sum = (read: (one: SumsAnswer) => number): number => groups.reduce((all, one) => all + read(one), 0);
  const refusals: Record<string, number> = {};
  for (const group of groups) {
    for (const [code, number] of Object.entries(group.refusals)) refusals[code] = (refusals[code] ?? 0) + number;
  }
  const cost = groups.reduce((all, one) => all + (parseDecimal(one.cost, PICO_DIGITS) ?? 0n), 0n);
  return {
    num_model_requests: sum((one) => one.num_model_requests),
    outcomes: {
      completed: sum(({ outcomes }) => outcomes.completed),
      aborted: sum(({ outcomes }) => outcomes.aborted),
      ended: sum(({ outcomes }) => outcomes.ended),
      failed: sum(({ outcomes }) => outcomes.failed),
    },
    refusals,
    input_tokens: sum((one) => one.input_tokens),
    input_cached_tokens: sum((one) => one.input_cached_tokens),
    output_tokens: sum((one) => one.output_tokens),
    output_reasoning_tokens: sum((one) => one.output_reasoning_tokens),
    cost: formatUsd(cost),
  };
}
