import { AppError, type ErrorCode } from '#base/errors.ts';
import { formatUsd, PICO_PER_MICRO } from '#base/money.ts';
import type { Admission, AdmitRefusal, AdmitRequest, AdmitResult, KeyRef } from '#core/admission/admission.ts';
import type { Model, PriceVersion } from '#core/catalog/catalog.ts';
import { holdForJson, holdForStream, type HoldRequest } from '#core/wallet/wallet.ts';
import type { Grant } from './call.ts';
import type { Endpoint } from './endpoints.ts';
import type { RequestFields } from './fields.ts';
import { limitError } from './limit-error.ts';
import { capOutput, estimateCost, estimateTokens } from './spending.ts';
import { createStreamHold, dearerInput } from './stream-hold.ts';

/**
 * What a request may cost at most, and the hold for it. A token is at least one byte of the body, but for what a chat
 * template adds and for media, whose tokens are not in the text; no prompt is longer than the model's context.
 */

/** Tokens that chat templates add beside the text: a default system prompt, tool instructions, role marks. */
const templateTokens = 512;
/** More than any wallet holds: asks what a request would want if money did not matter. */
const unlimitedMicroUsd = 10n ** 30n;

function promptTokensMax(fields: RequestFields, model: Model): number {
  const bytes = fields.media.present ? Number.POSITIVE_INFINITY : fields.text.length + templateTokens;
  // Each pair is read with the whole query: only its context bounds what a pair of a long list may be.
  if (model.taskType === 'rerank') return fields.prompts * Math.min(bytes, model.contextLength);
  if (fields.prompts > 1) return Math.min(bytes, fields.prompts * model.contextLength);
  // A list of inputs is many prompts of one context each; its bytes bound them all together.
  if (model.taskType === 'embedding') return Math.min(fields.text.length + templateTokens, Number.MAX_SAFE_INTEGER);
  return Math.min(bytes, model.contextLength);
}

function outputTokensMax(fields: RequestFields, model: Model, { generates, limitKeys, outputTokensDefault }: Endpoint) {
  if (!generates) return 0;
  if (fields.outputTokensMax !== null) return Math.min(fields.outputTokensMax, model.contextLength);
  // An explicit null is no default: vLLM then fills the rest of the context.
  const isAbsent = !limitKeys.some((key) => fields.members.has(key));
  return (isAbsent && model.engine.kind === 'vllm' ? outputTokensDefault : null) ?? model.contextLength;
}

export interface AdmitJob {
  readonly requestId: string;
  readonly key: KeyRef;
  readonly endpoint: Endpoint;
  readonly fields: RequestFields;
  readonly model: Model;
  readonly price: PriceVersion;
  /** What the caller pays at most; null without a cap. */
  readonly maxCostPicoUsd: bigint | null;
}

interface Bounds {
  readonly request: Omit<HoldRequest, 'availableMicroUsd'>;
  readonly outputTokens: number;
  /** The same where the caller's cap is what limits it, else null. */
  readonly cutTo: number | null;
  /** The hold can follow the answer; otherwise it is the worst case, as for a JSON answer. */
  readonly extends: boolean;
}

function boundsOf({ fields, model, price, endpoint, maxCostPicoUsd }: AdmitJob): Bounds {
  const outputTokens = outputTokensMax(fields, model, endpoint);
  const cutTo = capOutput(fields, price, maxCostPicoUsd, outputTokens);
  const request = {
    promptTokensMax: BigInt(promptTokensMax(fields, model)),
    choices: BigInt(fields.choices * fields.prompts),
    price,
  };
  return {
    request,
    outputTokens: cutTo ?? outputTokens,
    cutTo,
    extends: fields.stream && !fields.countLags,
  };
}

function holdFor({ request, outputTokens, extends: follows }: Bounds, availableMicroUsd: bigint) {
  const asked = { ...request, availableMicroUsd, outputTokensMax: BigInt(outputTokens) };
  return follows ? holdForStream(asked) : holdForJson(asked);
}

/** What the request would hold if money did not matter, and the least it needs. */
function holdBounds(bounds: Bounds): { wantedMicroUsd: bigint; neededMicroUsd: bigint } {
  const wanted = holdFor(bounds, unlimitedMicroUsd);
  const least = holdFor({ ...bounds, outputTokens: Math.min(1, bounds.outputTokens) }, unlimitedMicroUsd);
  return {
    wantedMicroUsd: wanted.refused ? wanted.neededMicroUsd : wanted.holdMicroUsd,
    neededMicroUsd: least.refused ? least.neededMicroUsd : least.holdMicroUsd,
  };
}

function refuse(result: AdmitRefusal, neededMicroUsd: bigint): AppError {
  if (result.code === 'billing_unavailable') {
    return new AppError('billing_unavailable', { headers: { 'retry-after': '1' } });
  }
  if (result.code === 'unauthorized') return new AppError('unauthorized', { message: 'This API key was revoked.' });
  if (result.code !== 'insufficient_funds') return limitError(result);
  const balance = formatUsd(result.balancePicoUsd);
  const held = formatUsd(result.heldMicroUsd * PICO_PER_MICRO);
  const needed = formatUsd(neededMicroUsd * PICO_PER_MICRO);
  const message = `The balance does not pay for this request: balance ${balance} USD, held by running requests ${held} USD, needed ${needed} USD.`;
  return new AppError('insufficient_funds', { message });
}

function requestOf(job: AdmitJob, bounds: Bounds): AdmitRequest {
  const estimatedTokens = estimateTokens(job.fields, bounds.cutTo ?? Number.POSITIVE_INFINITY);
  return { ...job.key, requestId: job.requestId, ...holdBounds(bounds), estimatedTokens };
}

/**
 * Takes a hold for a request.
 * @throws AppError insufficient_funds, billing_unavailable, the codes of the limits; invalid_value for a cap that
 *   does not pay for the prompt
 */
export function admitCall(admission: Admission, job: AdmitJob): Grant | Promise<Grant> {
  const bounds = boundsOf(job);
  const request = requestOf(job, bounds);
  const taken = (result: AdmitResult): Grant => {
    if (!result.ok) throw refuse(result, request.neededMicroUsd);
    return grantFor(admission, job, { bounds, request, result });
  };
  const result = admission.admit(request);
  return result instanceof Promise ? result.then(taken) : taken(result);
}

interface Admitted {
  readonly bounds: Bounds;
  readonly request: AdmitRequest;
  readonly result: AdmitResult & { readonly ok: true };
}

function grantFor(admission: Admission, job: AdmitJob, { bounds, request, result }: Admitted): Grant {
  const { fields, price } = job;
  const { heldMicroUsd, view } = result;
  if (bounds.extends) {
    const choices = fields.choices * fields.prompts;
    const streamHold = createStreamHold({
      admission,
      requestId: job.requestId,
      heldMicroUsd,
      price,
      promptTokensMax: bounds.request.promptTokensMax,
      prompts: fields.prompts,
      choices,
      outputTokensMax: bounds.outputTokens * choices,
    });
    return { heldMicroUsd, outputTokensMax: bounds.cutTo, streamHold, view };
  }
  // All that it wants pays for all that it asks.
  if (heldMicroUsd === request.wantedMicroUsd) {
    return { heldMicroUsd, outputTokensMax: bounds.cutTo, streamHold: null, view };
  }
  const granted = holdFor(bounds, heldMicroUsd);
  const cutTo = !granted.refused && 'cut' in granted && granted.cut ? Number(granted.outputTokensMax) : bounds.cutTo;
  return { heldMicroUsd, outputTokensMax: cutTo, streamHold: null, view };
}

/** What would come of a request, in pico-dollars. */
export interface Forecast {
  readonly estimatedPicoUsd: bigint;
  /** What it may cost at most, whatever the wallet has. */
  readonly worstPicoUsd: bigint;
  /** Why it would not be admitted; null when it would. */
  readonly refusal: ErrorCode | null;
}

/**
 * What admission would say of a request now, without counting or holding anything.
 * @throws AppError billing_unavailable; invalid_value as above
 */
export async function forecastCall(admission: Admission, job: AdmitJob): Promise<Forecast> {
  const { fields, price } = job;
  const bounds = boundsOf(job);
  const result = await admission.check(requestOf(job, bounds));
  if (!result.ok && result.code === 'billing_unavailable') throw new AppError('billing_unavailable');
  return {
    estimatedPicoUsd: estimateCost(fields, price, bounds.outputTokens),
    worstPicoUsd: worstCost(bounds),
    refusal: result.ok ? null : result.code,
  };
}

function worstCost({ request, outputTokens }: Bounds): bigint {
  const { promptTokensMax: prompt, choices, price } = request;
  return prompt * dearerInput(price) + choices * BigInt(outputTokens) * price.outputPerMTokMicroUsd;
}
