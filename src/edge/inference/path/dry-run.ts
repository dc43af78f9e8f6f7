import { AppError } from '#base/errors.ts';
import { formatUsd } from '#base/money.ts';
import { type Forecast, forecastHold } from '#core/admission/admission.ts';
import { completedBy, type Outcome, setEachLimit } from '#edge/inference/answer/answer.ts';
import type { Call, InferenceRequest } from '#edge/inference/call/call.ts';
import { demandOf, type PathParts } from '#edge/inference/engine/engine.ts';
import { capError } from '#edge/inference/request/request.ts';
import { requestTo } from './fall-back.ts';

/**
 * Answers a request that only asks what would happen: no engine sees it, and nothing is counted, held or written. If
 * the request allows fallbacks, the answer has forecasts for them too.
 * @throws AppError billing_unavailable; invalid_value for a cap that does not pay for the prompt
 */
export async function dryRun(
  parts: PathParts,
  call: Call,
  request: InferenceRequest,
  allowsFallback: boolean,
): Promise<Outcome> {
  const forecast = await forecastHold(parts.admission, demandOf(parts, call, request));
  if (!forecast.ok) throw forecast.code === 'cap_too_low' ? capError(forecast) : new AppError(forecast.code);
  if (call.terms.showsEachLimit && forecast.view !== null) setEachLimit(call.answer, forecast.view, parts.clock.now());
  const coldStartMs = parts.routing.coldStartMs(request.model);
  const answer = {
    object: 'dry_run',
    model: request.model.id,
    ...costsOf(forecast),
    cold_start_seconds: coldStartMs === null ? null : Math.ceil(coldStartMs / 100) / 10,
    ...(allowsFallback && (await withFallbacks(parts, call, request, forecast))),
  };
  return completedBy(Buffer.from(JSON.stringify(answer), 'utf8').toString('latin1'));
}

function costsOf({ estimatedPicoUsd, worstPicoUsd, refusal }: Forecast) {
  return {
    estimated_cost: formatUsd(estimatedPicoUsd),
    worst_cost: formatUsd(worstPicoUsd),
    admitted: refusal === null,
    refusal,
  };
}

/** Returns the costs of the fallbacks that may answer, and the most that any model would cost. */
async function withFallbacks(parts: PathParts, call: Call, asked: InferenceRequest, forecast: Forecast) {
  const fallbacks: ({ readonly model: string } & ReturnType<typeof costsOf>)[] = [];
  let mostPicoUsd = forecast.worstPicoUsd;
  for (const id of asked.model.fallbacks) {
    const request = requestTo(parts, call, asked, id);
    const other = request === null ? null : await forecastHold(parts.admission, demandOf(parts, call, request));
    // A fallback that the cap does not pay for is skipped, like one that does not serve the request.
    if (other?.ok !== true) continue;
    fallbacks.push({ model: id, ...costsOf(other) });
    if (other.worstPicoUsd > mostPicoUsd) mostPicoUsd = other.worstPicoUsd;
  }
  return { fallbacks, worst_cost_with_fallbacks: formatUsd(mostPicoUsd) };
}
