import type { ProjectLimit, Spender } from '#core/admission/contract/contract.ts';
import { reserve } from '#core/limits/limits.ts';

/**
 * State of a hold in Redis: `registered` if Redis has the hold, `registering` while it is on its way there, `local` if
 * this process admitted the request instead of Redis. `unsure`: Redis was asked, and its answer is unknown.
 */
export type Standing = 'registered' | 'registering' | 'local' | 'unsure';

/** Counts of an admitted request against the limits that its project has for its model. */
export interface OwnModel {
  readonly slot: string;
  readonly tokensPerMinute: number | null;
  readonly reservedTokens: number;
}

/** Returns the counts of a request at its admission. */
export function ownModel(limit: ProjectLimit | null, estimatedTokens: number): OwnModel | null {
  if (limit === null) return null;
  const { tokensPerMinute } = limit.limits;
  return { slot: limit.slot, tokensPerMinute, reservedTokens: reserve(estimatedTokens, tokensPerMinute) };
}

/** Returns the counts as the script that registers holds reads them. */
export function modelText(model: OwnModel | null): string {
  if (model === null) return '-';
  return `${model.slot} ${model.reservedTokens} ${model.tokensPerMinute ?? '-'}`;
}

/** The hold of an admitted request, as its own gateway knows it. */
export interface OwnHold {
  readonly organizationId: string;
  readonly keyId: string;
  readonly tokensPerMinute: number | null;
  readonly spender: Spender | undefined;
  /** Slots of the budgets that the request counts against. */
  slots: readonly string[];
  /** Slots that it counted against before another model served it. Redis may still have counted it there. */
  formerSlots: readonly string[];
  /** Catalog id of the model that serves the request. */
  modelId: string | undefined;
  /** Counts against the limits of the request's project; null if there were none. */
  model: OwnModel | null;
  /** Time of Redis' clock, in milliseconds since the Unix epoch. */
  readonly beganMs: number;
  estimatedTokens: number;
  reservedTokens: number;
  heldMicroUsd: bigint;
  /** True if the usage is durable, but not in the database yet: the request no longer runs. */
  isSpooled: boolean;
  /** True if the hold was given back: an extension requested before is not added any more. */
  isSettled: boolean;
  standing: Standing;
  /** True if Redis has a smaller amount than is held. */
  isRaised: boolean;
}

/** Ended use of a key, or of a model in a project, that Redis does not have. */
export interface UnregisteredUse {
  /** Id of the key; for a model, the slot of its limits. */
  readonly keyId: string;
  readonly tokensPerMinute: number | null;
  /** Requests of the running minute, and their tokens. */
  readonly requests: number;
  readonly tokens: number;
  /** Start of that minute, by Redis' clock. */
  readonly beganMs: number;
  /** Names these counts, so that Redis adds them once, however often they are sent. */
  readonly message: string;
}
