import { AppError } from '#base/errors.ts';
import { formatUsd, PICO_PER_MICRO } from '#base/money.ts';
import type { Admission, AdmitRefusal, KeyRef } from '#core/admission/admission.ts';
import type { Model, PriceVersion } from '#core/catalog/catalog.ts';
import { holdForJson, holdForStream, type HoldRequest } from '#core/wallet/wallet.ts';
import type { Grant } from './call.ts';
import type { InferenceEndpoint, RequestFields } from './fields.ts';
import { limitError } from './limit-error.ts';
import { createStreamHold } from './hold.ts';

/**
 * What a request may cost at most, and the hold for it. A token is at least one byte of the body, but for what a chat
 * template adds and for media, whose tokens are not in the text; no prompt is longer than the model's context.
 */

/** Tokens that chat templates add beside the text: a default system prompt, tool instructions, role marks. */
const templateTokens = 512;
/** vLLM's own default of `max_tokens` for text completions. */
const completionTokensDefault = 16;
/** More than any wallet holds: asks what a request would want if money did not matter. */
const unlimitedMicroUsd = 10n ** 30n;

function promptTokensMax(fields: RequestFields, model: Model): number {
  const hasMedia = fields.text.includes('_url"') || fields.text.includes('data:');
  const bytes = hasMedia ? Number.POSITIVE_INFINITY : fields.text.length + templateTokens;
  if (fields.prompts > 1) return Math.min(bytes, fields.prompts * model.contextLength);
  // A list of inputs is many prompts of one context each; its bytes bound them all together.
  if (model.taskType === 'embedding') return Math.min(fields.text.length + templateTokens, Number.MAX_SAFE_INTEGER);
  return Math.min(bytes, model.contextLength);
}

function outputTokensMax(fields: RequestFields, model: Model, endpoint: InferenceEndpoint): number {
  if (endpoint === '/v1/embeddings') return 0;
  if (fields.outputTokensMax !== null) return Math.min(fields.outputTokensMax, model.contextLength);
  // An explicit null is no default: vLLM then fills the rest of the context.
  const isAbsent = !fields.members.has('max_tokens');
  const isDefaulted = isAbsent && endpoint === '/v1/completions' && model.engine.kind === 'vllm';
  return isDefaulted ? completionTokensDefault : model.contextLength;
}

export interface AdmitJob {
  readonly requestId: string;
  readonly key: KeyRef;
  readonly endpoint: InferenceEndpoint;
  readonly fields: RequestFields;
  readonly model: Model;
  readonly price: PriceVersion;
}

/** Tokens counted for a request that names no limit, until its real count is known. */
const outputTokensGuess = 256;
const bytesPerToken = 4;

/** What is reserved of the limits on tokens: the body's bytes over 4, and the output that it asks for. */
function estimateTokens(fields: RequestFields): number {
  const output = (fields.outputTokensMax ?? outputTokensGuess) * fields.choices * fields.prompts;
  return Math.ceil(fields.text.length / bytesPerToken) + output;
}

interface Bounds {
  readonly request: Omit<HoldRequest, 'availableMicroUsd'>;
  readonly outputTokens: number;
  /** The hold can follow the answer; otherwise it is the worst case, as for a JSON answer. */
  readonly extends: boolean;
}

function boundsOf({ fields, model, price, endpoint }: AdmitJob): Bounds {
  const request = {
    promptTokensMax: BigInt(promptTokensMax(fields, model)),
    choices: BigInt(fields.choices * fields.prompts),
    price,
  };
  return {
    request,
    outputTokens: outputTokensMax(fields, model, endpoint),
    extends: fields.stream && !fields.countLags,
  };
}

function holdFor({ request, outputTokens, extends: follows }: Bounds, availableMicroUsd: bigint) {
  const asked = { ...request, availableMicroUsd, outputTokensMax: BigInt(outputTokens) };
  return follows ? holdForStream(asked) : holdForJson(asked);
}

/** What the request would hold if money did not matter, and the least it needs. */
function wishes(bounds: Bounds): { wantedMicroUsd: bigint; neededMicroUsd: bigint } {
  const wanted = holdFor(bounds, unlimitedMicroUsd);
  const least = holdFor({ ...bounds, outputTokens: Math.min(1, bounds.outputTokens) }, unlimitedMicroUsd);
  return {
    wantedMicroUsd: wanted.refused ? wanted.neededMicroUsd : wanted.holdMicroUsd,
    neededMicroUsd: least.refused ? least.neededMicroUsd : least.holdMicroUsd,
  };
}

function refuse(result: AdmitRefusal, neededMicroUsd: bigint): AppError {
  if (result.code === 'billing_unavailable') return new AppError('billing_unavailable');
  if (result.code !== 'insufficient_funds') return limitError(result);
  const balance = formatUsd(result.balancePicoUsd);
  const held = formatUsd(result.heldMicroUsd * PICO_PER_MICRO);
  const needed = formatUsd(neededMicroUsd * PICO_PER_MICRO);
  const message = `The balance does not pay for this request: balance ${balance} USD, held by running requests ${held} USD, needed ${needed} USD.`;
  return new AppError('insufficient_funds', { message });
}

/**
 * Takes a hold for a request.
 * @throws AppError insufficient_funds, billing_unavailable
 */
export async function admitCall(admission: Admission, job: AdmitJob): Promise<Grant> {
  const bounds = boundsOf(job);
  const { wantedMicroUsd, neededMicroUsd } = wishes(bounds);
  const asked = admission.admit({
    ...job.key,
    requestId: job.requestId,
    neededMicroUsd,
    wantedMicroUsd,
    estimatedTokens: estimateTokens(job.fields),
  });
  const result = asked instanceof Promise ? await asked : asked;
  if (!result.ok) throw refuse(result, neededMicroUsd);
  return { ...grantFor(admission, job, bounds, result.heldMicroUsd), view: result.view };
}

function grantFor(admission: Admission, job: AdmitJob, bounds: Bounds, heldMicroUsd: bigint): Omit<Grant, 'view'> {
  const { fields, price } = job;
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
    return { heldMicroUsd, outputTokensMax: null, streamHold };
  }
  const granted = holdFor(bounds, heldMicroUsd);
  const cutTo = !granted.refused && 'cut' in granted && granted.cut ? Number(granted.outputTokensMax) : null;
  return { heldMicroUsd, outputTokensMax: cutTo, streamHold: null };
}
