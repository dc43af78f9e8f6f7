import { PICO_PER_MICRO } from '#base/money.ts';
import type { LimitCode, LimitsView } from '#core/limits/limits.ts';
import type { Admission, AdmitRefusal, AdmitRequest, AdmitResult, KeyRef, Spender } from './contract.ts';
import {
  type CapRefusal,
  type CostBounds,
  costBounds,
  type CostTerms,
  estimateCost,
  estimateTokens,
  holdBounds,
  holdFor,
  type RequestSize,
  worstCost,
} from './request-cost.ts';
import { createRequestHold, type RequestHold } from './request-hold.ts';

/** A request that wants to run, and what it may cost. */
export interface HoldDemand extends CostTerms {
  readonly requestId: string;
  readonly key: KeyRef;
  readonly spender?: Spender;
  /** Catalog id of the model that serves it. */
  readonly model?: string;
}

/** What an admitted request has. */
export interface Grant {
  readonly ok: true;
  /** At its admission. */
  readonly heldMicroUsd: bigint;
  /** The key's limits after this request was counted. */
  readonly view: LimitsView;
  /** Output tokens per choice that wallet and budgets or the caller's cap pay for; null where its own limit stands. */
  readonly outputTokensMax: number | null;
  readonly hold: RequestHold;
  readonly size: RequestSize;
}

/** What there is too little of. */
type Short = Extract<AdmitRefusal, { readonly code: 'insufficient_funds' | 'budget_exceeded' }>;

export type HoldRefusal = CapRefusal | Exclude<AdmitRefusal, Short> | (Short & { readonly neededMicroUsd: bigint });

/**
 * Admits a request with the hold that its kind needs. A stream holds some output ahead and extends that while it runs;
 * what cannot be ended in time holds all that it asks for, and has its output limited to what the balance pays for.
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
  const estimatedTokens = estimateTokens(size, bounds.cappedTo ?? Number.POSITIVE_INFINITY);
  const of = { ...(spender !== undefined && { spender }), ...(model !== undefined && { model }) };
  return { ...key, requestId, ...holdBounds(bounds), estimatedTokens, ...of };
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

/** Output tokens per choice that an engine is limited to, by the caller's cap or by money; null: neither does. */
function outputGranted({ bounds, request }: Asked, heldMicroUsd: bigint): number | null {
  // All that it wants pays for all that it asks.
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
    outputTokensMax: perChoice === null ? Number(bounds.ceiling.outputTokens) : perChoice * choices * prompts,
    turnTokensMax: Number(bounds.ceiling.outputTokens) / demand.size.turns,
    ceiling: bounds.ceiling,
  });
}

/** More may be held than a request asks for: its own limit stands. */
const belowAsked = ({ outputTokensAsked }: HoldDemand['size'], tokens: number | null): number | null =>
  tokens !== null && outputTokensAsked !== null && tokens >= outputTokensAsked ? null : tokens;

/** What a request holds that another model does not serve: more than its grant says where it was raised for that one. */
export interface NotMoved {
  readonly ok: false;
  readonly heldMicroUsd: bigint;
}

/**
 * The grant of a request that another model serves from now on: its hold is raised to what it wants at that price, as
 * far as there is so much, and left as it is where that does not reach the least. The limits of its key have counted it
 * already; of those of its project it counts against the ones for this model from now on.
 * @param raisedTo what it holds by now, where it was raised in vain after its grant
 * @returns what it holds, where wallet, budget or the caller's cap do not pay for it, or those limits refuse it
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

/** Has a request count again for the model that it was admitted for, where no other one has answered it. */
export async function moveBack(admission: Admission, demand: HoldDemand): Promise<void> {
  const bounds = costBounds(demand);
  if (!bounds.ok) return;
  const { requestId, model = '', estimatedTokens } = requestOf(demand, bounds);
  await admission.move(requestId, { model, estimatedTokens, isForced: true });
}

/** What would come of a request, in pico-dollars. */
export interface Forecast {
  readonly ok: true;
  readonly estimatedPicoUsd: bigint;
  /** What it may cost at most, whatever the wallet has. */
  readonly worstPicoUsd: bigint;
  /** As limits stand; null where nobody asked them. */
  readonly view: LimitsView | null;
  /** Why it would not be admitted; null when it would. */
  readonly refusal: LimitCode | 'insufficient_funds' | 'budget_exceeded' | 'unauthorized' | null;
}

/** What `takeHold` would come to now, without counting or holding anything. */
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
