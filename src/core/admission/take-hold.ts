import { PICO_PER_MICRO } from '#base/money.ts';
import {
  type Admission,
  type AdmitRefusal,
  type AdmitRequest,
  type AdmitResult,
  type CapRefusal,
  type CostBounds,
  costBounds,
  type CostTerms,
  estimateCost,
  estimateTokens,
  holdBounds,
  holdFor,
  likelyTokens,
  type KeyRef,
  type RequestSize,
  type Spender,
  worstCost,
} from '#core/admission/contract/contract.ts';
import type { LimitCode, LimitsView } from '#core/limits/limits.ts';
import { createRequestHold, type RequestHold } from './request-hold.ts';

/** A request that wants to run, and the terms of its cost. */
export interface HoldDemand extends CostTerms {
  readonly requestId: string;
  readonly key: KeyRef;
  readonly spender?: Spender;
  /** Catalog id of the model that serves it. */
  readonly model?: string;
}

/** The grant of an admitted request. */
export interface Grant {
  readonly ok: true;
  /** Hold at its admission. */
  readonly heldMicroUsd: bigint;
  /** The key's limits after this request was counted. */
  readonly view: LimitsView;
  /**
   * Output tokens per choice that wallet, budgets and the caller's cap pay for; null if the request's own limit
   * applies.
   */
  readonly outputTokensMax: number | null;
  readonly hold: RequestHold;
  readonly size: RequestSize;
}

/** A refusal because wallet or budget has too little. */
type Short = Extract<AdmitRefusal, { readonly code: 'insufficient_funds' | 'budget_exceeded' }>;

export type HoldRefusal = CapRefusal | Exclude<AdmitRefusal, Short> | (Short & { readonly neededMicroUsd: bigint });

/**
 * Admits a request with the hold that its kind needs. A stream holds some output ahead and extends that while it runs.
 * An answer that cannot be ended in time holds all that it asks for, and its output is limited to what the balance pays
 * for.
 */
export function takeHold(admission: Admission, demand: HoldDemand): Grant | HoldRefusal | Promise<Grant | HoldRefusal> {
  const bounds = costBounds(demand);
  if (!bounds.ok) return bounds;
  const request = requestOf(demand, bounds);
  const asked: Asked = { admission, demand, bounds, request };
  const result = admission.admit(request);
  return result instanceof Promise ? result.then((later) => answerTo(asked, later)) : answerTo(asked, result);
}

function requestOf({ key, spender, model, requestId, size }: HoldDemand, bounds: CostBounds): AdmitRequest {
  const { wantedMicroUsd, neededMicroUsd } = holdBounds(bounds);
  return {
    organizationId: key.organizationId,
    keyId: key.keyId,
    limits: key.limits,
    requestId,
    wantedMicroUsd,
    neededMicroUsd,
    estimatedTokens: estimateTokens(size, bounds.cappedTo ?? Number.POSITIVE_INFINITY),
    spender,
    model,
  };
}

interface Asked {
  readonly admission: Admission;
  readonly demand: HoldDemand;
  readonly bounds: CostBounds;
  readonly request: AdmitRequest;
}

function answerTo(asked: Asked, result: AdmitResult): Grant | HoldRefusal {
  if (result.ok) return grantFor(asked, result);
  if (result.code !== 'insufficient_funds' && result.code !== 'budget_exceeded') return result;
  return { ...result, neededMicroUsd: asked.request.neededMicroUsd };
}

function grantFor(asked: Asked, { heldMicroUsd, view }: AdmitResult & { readonly ok: true }): Grant {
  const { size } = asked.demand;
  const outputTokensMax = belowAsked(size, outputGranted(asked, heldMicroUsd));
  return { ok: true, heldMicroUsd, outputTokensMax, hold: holdOf(asked, heldMicroUsd), size, view };
}

/**
 * Returns the output tokens per choice that an engine is limited to, by the caller's cap or by money; null if neither
 * does.
 */
function outputGranted({ bounds, request }: Asked, heldMicroUsd: bigint): number | null {
  // The wanted hold pays for everything that the request asks for.
  if (bounds.extends || heldMicroUsd === request.wantedMicroUsd) return bounds.cappedTo;
  const granted = holdFor(bounds, heldMicroUsd);
  const isCut = !granted.refused && 'cut' in granted && granted.cut;
  return isCut ? Number(granted.outputTokensMax) : bounds.cappedTo;
}

function holdOf(asked: Asked, heldMicroUsd: bigint): RequestHold {
  const { admission, demand, bounds } = asked;
  const { prompts, choices, isLimitKept } = demand.size;
  const perChoice = isLimitKept ? outputGranted(asked, heldMicroUsd) : null;
  return createRequestHold({
    admission,
    requestId: demand.requestId,
    heldMicroUsd,
    price: demand.price,
    promptTokens: bounds.request.promptTokensMax,
    prompts,
    choices: choices * prompts,
    outputTokensMax: perChoice === null ? likelyTokens(demand.size).outputTokensMax : perChoice * choices * prompts,
    turnTokensMax: Number(bounds.ceiling.outputTokens) / demand.size.turnsPossible,
    ceiling: bounds.ceiling,
  });
}

/** Returns null if the hold pays for more than the request asks for: then its own limit applies. */
const belowAsked = ({ outputTokensAsked }: HoldDemand['size'], tokens: number | null): number | null =>
  tokens !== null && outputTokensAsked !== null && tokens >= outputTokensAsked ? null : tokens;

/** Hold of a request that another model does not serve: larger than in its grant if it was raised for that model. */
export interface NotMoved {
  readonly ok: false;
  readonly heldMicroUsd: bigint;
}

/**
 * Returns the grant of a request that another model serves from now on. Its hold is raised to the amount wanted at that
 * price, as far as available, and stays as it is if that does not reach the least. The limits of its key have already
 * counted it; of the limits of its project, those for this model count it from now on.
 * @param raisedTo current hold, if it was raised in vain after its grant
 * @returns the hold, if wallet, budget or the caller's cap do not pay for it, or the project limits reject it
 */
export async function moveHold(
  admission: Admission,
  grant: Grant,
  demand: HoldDemand,
  raisedTo = 0n,
): Promise<Grant | NotMoved> {
  const bounds = costBounds(demand);
  if (!bounds.ok) return { ok: false, heldMicroUsd: raisedTo };
  // An extension may be on its way.
  await grant.hold.cover(0n);
  const request = requestOf(demand, bounds);
  const { neededMicroUsd, wantedMicroUsd, requestId } = request;
  const grantedMicroUsd = grant.hold.heldPicoUsd / PICO_PER_MICRO;
  let heldMicroUsd = raisedTo > grantedMicroUsd ? raisedTo : grantedMicroUsd;
  if (heldMicroUsd < wantedMicroUsd) {
    const leastMicroUsd = neededMicroUsd > heldMicroUsd ? neededMicroUsd - heldMicroUsd : 0n;
    const added = await admission.extend(requestId, wantedMicroUsd - heldMicroUsd, leastMicroUsd);
    if (typeof added === 'bigint') heldMicroUsd += added;
  }
  if (heldMicroUsd < neededMicroUsd) return { ok: false, heldMicroUsd };
  const { model = '', estimatedTokens } = request;
  const isMoved = await admission.move(requestId, { model, estimatedTokens, isForced: false });
  if (!isMoved) return { ok: false, heldMicroUsd };
  return grantFor({ admission, demand, bounds, request }, { ok: true, heldMicroUsd, view: grant.view });
}

/** Moves a request back to the model that it was admitted for, because no other model answered it. */
export async function moveBack(admission: Admission, demand: HoldDemand): Promise<void> {
  const bounds = costBounds(demand);
  if (!bounds.ok) return;
  const { requestId, model = '', estimatedTokens } = requestOf(demand, bounds);
  await admission.move(requestId, { model, estimatedTokens, isForced: true });
}

/** Forecast of a request, in pico-dollars. */
export interface Forecast {
  readonly ok: true;
  readonly estimatedPicoUsd: bigint;
  /** Most that it may cost in the turns that its tools may take, whatever the wallet has. */
  readonly worstPicoUsd: bigint;
  /** Current limits; null if they were not checked. */
  readonly view: LimitsView | null;
  /** Reason for a rejection; null if the request would be admitted. */
  readonly refusal: LimitCode | 'insufficient_funds' | 'budget_exceeded' | 'unauthorized' | null;
}

/** Returns the result that `takeHold` would have now, without counting or holding anything. */
export async function forecastHold(
  admission: Admission,
  demand: HoldDemand,
): Promise<Forecast | CapRefusal | { readonly ok: false; readonly code: 'billing_unavailable' }> {
  const bounds = costBounds(demand);
  if (!bounds.ok) return bounds;
  const result = await admission.check(requestOf(demand, bounds));
  if (!result.ok && result.code === 'billing_unavailable') return { ok: false, code: 'billing_unavailable' };
  return {
    ok: true,
    estimatedPicoUsd: estimateCost(demand.size, demand.price, bounds.outputTokens),
    worstPicoUsd: worstCost(demand.size, bounds),
    view: result.ok ? result.view : 'limits' in result ? result.limits : null,
    refusal: result.ok ? null : result.code,
  };
}
