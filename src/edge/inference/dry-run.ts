import { AppError } from '#base/errors.ts';
import { formatUsd } from '#base/money.ts';
import { type Admission, forecastHold } from '#core/admission/admission.ts';
import type { Routing } from '#core/routing/routing.ts';
import { demandOf } from './admit.ts';
import type { Call, InferenceRequest } from './call.ts';
import { completedBy, type Outcome } from './outcome.ts';
import { capError } from './spending.ts';

export interface DryRunParts {
  readonly admission: Admission;
  readonly routing: Routing;
}

/**
 * Answers a request that only asks what would happen: no engine sees it, nothing is counted, held or written.
 * @throws AppError billing_unavailable; invalid_value for a cap that does not pay for the prompt
 */
export async function dryRun(
  { admission, routing }: DryRunParts,
  call: Call,
  request: InferenceRequest,
): Promise<Outcome> {
  const forecast = await forecastHold(admission, demandOf(call, request));
  if (!forecast.ok) throw forecast.code === 'cap_too_low' ? capError(forecast) : new AppError(forecast.code);
  const coldStartMs = routing.coldStartMs(request.model);
  const answer = {
    object: 'dry_run',
    model: request.model.id,
    estimated_cost: formatUsd(forecast.estimatedPicoUsd),
    worst_cost: formatUsd(forecast.worstPicoUsd),
    admitted: forecast.refusal === null,
    refusal: forecast.refusal,
    cold_start_seconds: coldStartMs === null ? null : Math.ceil(coldStartMs / 100) / 10,
  };
  return completedBy(Buffer.from(JSON.stringify(answer), 'utf8').toString('latin1'));
}
