import { formatUsd } from '#base/money.ts';
import type { Admission } from '#core/admission/admission.ts';
import type { Routing } from '#core/routing/routing.ts';
import { forecastCall, type AdmitJob } from './admit.ts';

/**
 * The answer to a request that only asks what would happen: no engine sees it, nothing is counted, held or written.
 * @returns JSON as latin1
 * @throws AppError billing_unavailable; invalid_value for a cap that does not pay for the prompt
 */
export async function dryRun(admission: Admission, routing: Routing, job: AdmitJob): Promise<string> {
  const { estimatedPicoUsd, worstPicoUsd, refusal } = await forecastCall(admission, job);
  const coldStartMs = routing.coldStartMs(job.model);
  const answer = {
    object: 'dry_run',
    model: job.model.id,
    estimated_cost: formatUsd(estimatedPicoUsd),
    worst_cost: formatUsd(worstPicoUsd),
    admitted: refusal === null,
    refusal,
    cold_start_seconds: coldStartMs === null ? null : Math.ceil(coldStartMs / 100) / 10,
  };
  return Buffer.from(JSON.stringify(answer), 'utf8').toString('latin1');
}
