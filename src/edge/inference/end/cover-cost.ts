import { formatUsd } from '#base/money.ts';
import type { Grant } from '#core/admission/admission.ts';
import type { Usage } from '#core/metering/metering.ts';
import type { Outcome } from '#edge/inference/answer/answer.ts';
import type { Call, InferenceRequest } from '#edge/inference/call/call.ts';
import { isFilledUp, type PathParts } from '#edge/inference/engine/engine.ts';
import { billOfCall } from './call-end.ts';

type CoverParts = Pick<PathParts, 'overheads' | 'countFaults' | 'log'>;

/**
 * Extends the hold of an admitted request to the cost of its answer, as far as wallet, budgets and the caller's cap pay
 * for it. Writes the billed usage into the answer, with the charge if the client asked for it: client and record have
 * the same numbers.
 */
export function coverCost(parts: CoverParts, call: Call, outcome: Outcome): Outcome | Promise<Outcome> {
  const { request, grant } = call.found;
  if (request === null || grant === null) return outcome;
  learnOverhead(parts, call, { request, grant }, outcome);
  const { duePicoUsd, isCut, usage } = billOfCall(call, request, outcome);
  const fault = isCut ? 'higher' : outcome.countFault;
  if (fault !== null) reportFault(parts, call, { request, outcome, fault });
  const covering = grant.hold.cover(duePicoUsd);
  const write = (): Outcome => withBill(call, request, outcome, usage);
  return covering === null ? write() : covering.then(write);
}

function withBill(call: Call, request: InferenceRequest, outcome: Outcome, usage: Usage): Outcome {
  if (outcome.writeBill === null) return outcome;
  const costText = request.fields.wantsCost ? formatUsd(billOfCall(call, request, outcome).costPicoUsd) : null;
  return { ...outcome, last: outcome.writeBill({ usage, costText }) };
}

function learnOverhead(
  { overheads }: CoverParts,
  { endpoint }: Call,
  { request, grant }: { readonly request: InferenceRequest; readonly grant: Grant },
  { usage, usageSource }: Outcome,
): void {
  if (usageSource !== 'engine' || isFilledUp(request.fields)) return;
  overheads.learn(
    { organizationId: request.caller.organizationId, model: request.model.id, route: endpoint.path },
    grant.size,
    usage.inputTokens,
  );
}

/** Logs a fault once per engine until the gateway restarts: all answers of an engine are alike. */
function reportFault(
  { countFaults, log }: CoverParts,
  { endpoint, requestId }: Call,
  { request, outcome, fault }: CountFault,
): void {
  const engine = request.model.engine.id;
  const { usage, usageSource } = outcome;
  if (countFaults.has(`${engine} ${fault}`)) return;
  countFaults.add(`${engine} ${fault}`);
  log.warn({ engine, endpoint: endpoint.path, requestId, usageSource, usage }, `an engine ${faultTexts[fault]}`);
}

interface CountFault {
  readonly request: InferenceRequest;
  readonly outcome: Outcome;
  readonly fault: keyof typeof faultTexts;
}

const billedOtherwise =
  'the gateway bills such requests by earlier counts, by the text of the answer, or by an estimate';
const faultTexts = {
  absent: `sent no usable token count; ${billedOtherwise}`,
  lower: `sent a final token count below the tokens it generated; ${billedOtherwise}`,
  higher: 'sent a token count above what the request could have used; such requests are billed up to that bound',
};
