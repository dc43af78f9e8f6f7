import { AppError } from '#base/errors.ts';
import { formatUsd, PICO_PER_MICRO } from '#base/money.ts';
import {
  type Grant,
  type HoldDemand,
  type HoldRefusal,
  type RequestSize,
  takeHold,
} from '#core/admission/admission.ts';
import type { Model } from '#core/catalog/catalog.ts';
import { unauthorized } from '#edge/http/http.ts';
import {
  type Answer,
  budgetError,
  keyRefOf,
  limitError,
  setEachLimit,
  setLimitHeaders,
  spenderOf,
} from '#edge/inference/answer/answer.ts';
import type { Call, InferenceRequest } from '#edge/inference/call/call.ts';
import { capError, type Endpoint, type RequestFields } from '#edge/inference/request/request.ts';
import { isLimitKept, turnsPossible } from './counted-max.ts';
import type { PathParts } from './path-parts.ts';

/**
 * Collects the facts that decide a request's cost.
 * @param overheadTokens tokens that the model is known to add to each prompt of this route
 */
function sizeOf(endpoint: Endpoint, request: InferenceRequest, overheadTokens: number): RequestSize {
  const { fields, model, turns, dropped } = request;
  const isFree = endpoint.isFree === true;
  return {
    // Free endpoints use no tokens.
    // The engine does not get the tools that were left out.
    bodyBytes: isFree ? 0 : fields.text.length - (dropped?.bytes ?? 0),
    unreadBytes: isFree ? 0 : fields.unreadBytes,
    tokenIds: isFree ? 0 : fields.tokenIds,
    // Results of the engine's tools are not in the body.
    isBoundByBytes: turns === 1 && !fields.media.present && !fields.members.has('previous_response_id'),
    overheadTokens: isFree ? 0 : overheadTokens,
    inputs: endpoint.inputs.kind,
    prompts: fields.prompts,
    generates: endpoint.generates,
    contexts: fields.texts,
    choices: fields.choices,
    outputTokensAsked: isFree ? 0 : fields.outputTokensMax,
    turns,
    turnsPossible: turnsPossible(endpoint, model.engine, turns),
    isLimitKept: isFree || isLimitKept(request),
    outputTokensDefault: fields.outputTokensMax === null ? outputTokensDefault(endpoint, fields, model) : null,
    contextLength: model.contextLength,
  };
}

/**
 * Output limit if the request has none. An explicit null is no default: vLLM, like other engines, then fills the
 * context.
 */
function outputTokensDefault(endpoint: Endpoint, { members }: RequestFields, { engine }: Model): number | null {
  if (!endpoint.generates) return 0;
  const isAbsent = !endpoint.limitKeys.some((key) => members.has(key));
  return isAbsent && engine.kind === 'vllm' ? endpoint.outputTokensDefault : null;
}

export function demandOf(
  { overheads }: Pick<PathParts, 'overheads'>,
  { requestId, endpoint, terms }: Call,
  request: InferenceRequest,
): HoldDemand {
  const { caller, fields, model, price, capPicoUsd, endUser } = request;
  return {
    requestId,
    key: keyRefOf(caller),
    spender: spenderOf(caller, endUser?.isCounted === true ? endUser.name : null),
    model: model.id,
    size: sizeOf(
      endpoint,
      request,
      overheads.of({ organizationId: caller.organizationId, model: model.id, route: endpoint.path }),
    ),
    price,
    capPicoUsd,
    extends: fields.stream && !fields.countLags,
    isWhole: terms.isWholeOrFree,
  };
}

/**
 * Takes a hold for a request, and counts the request against its key's limits.
 * @throws AppError insufficient_funds, budget_exceeded, billing_unavailable, the codes of the limits; invalid_value for
 * a cap that does not pay for the prompt
 */
export function admit(parts: AdmitParts, call: Call, request: InferenceRequest): Grant | Promise<Grant> {
  const taken = takeHold(parts.admission, demandOf(parts, call, request));
  return taken instanceof Promise
    ? taken.then((result) => keepGrant(parts, call, result))
    : keepGrant(parts, call, taken);
}

type AdmitParts = Pick<PathParts, 'admission' | 'budgets' | 'clock' | 'overheads'>;

function keepGrant({ budgets, clock }: AdmitParts, { answer, found, terms }: Call, result: Grant | HoldRefusal): Grant {
  if (!result.ok) {
    if (result.code === 'budget_exceeded') budgets.refused(result.budget);
    throw refusalError(result, clock.now());
  }
  found.grant = result;
  setLimitHeaders(answer, result.view, clock.now());
  if (terms.showsEachLimit) setEachLimit(answer, result.view, clock.now());
  showOutputLimit(answer, result);
  return result;
}

export const outputLimitHeader = 'x-headgate-max-tokens';

/** Sets the header with the output limit, if the available money lowered it. */
export function showOutputLimit(answer: Answer, { outputTokensMax }: Grant): void {
  if (outputTokensMax !== null) answer.setHeader(outputLimitHeader, String(outputTokensMax));
}

function refusalError(refusal: HoldRefusal, nowMs: number): AppError {
  switch (refusal.code) {
    case 'cap_too_low':
      return capError(refusal);
    case 'billing_unavailable':
      return new AppError('billing_unavailable', { headers: { 'retry-after': '1' } });
    case 'unauthorized':
      return unauthorized('This API key was revoked.', 'key_revoked');
    case 'insufficient_funds': {
      const balance = formatUsd(refusal.balancePicoUsd);
      const held = formatUsd(refusal.heldMicroUsd * PICO_PER_MICRO);
      const needed = formatUsd(refusal.neededMicroUsd * PICO_PER_MICRO);
      const message = `The balance does not cover this request: balance ${balance} USD, held by running requests ${held} USD, needed ${needed} USD.`;
      return new AppError('insufficient_funds', { message, reason: 'wallet' });
    }
    case 'budget_exceeded':
      return budgetError(refusal, nowMs);
    default:
      return limitError(refusal, nowMs);
  }
}
