import { reserve } from '#core/limits/limits.ts';
import type { ProjectLimit, Spender } from './contract.ts';

/**
 * Whether Redis knows of a hold: `told`; `telling` while it is on its way there; `local` for one that was admitted in its
 * place. Of an `unsure` one it was asked, and nobody knows what it said.
 */
export type Standing = 'told' | 'telling' | 'local' | 'unsure';

/** What an admitted request counts as against the limits that its project has for its model. */
export interface OwnModel {
  readonly slot: string;
  readonly tokensPerMinute: number | null;
  readonly reservedTokens: number;
}

/** The same as it is admitted. */
export function ownModel(limit: ProjectLimit | null, estimatedTokens: number): OwnModel | null {
  if (limit === null) return null;
  const { tokensPerMinute } = limit.limits;
  return { slot: limit.slot, tokensPerMinute, reservedTokens: reserve(estimatedTokens, tokensPerMinute) };
}

/** As the script that registers holds reads it. */
export function modelText(model: OwnModel | null): string {
  if (model === null) return '-';
  return `${model.slot} ${model.reservedTokens} ${model.tokensPerMinute ?? '-'}`;
}

/** What an admitted request holds, as its own gateway knows it. */
export interface OwnHold {
  readonly organizationId: string;
  readonly keyId: string;
  readonly tokensPerMinute: number | null;
  readonly spender: Spender | undefined;
  /** The slots of the budgets that it counts against. */
  readonly slots: readonly string[];
  /** What it counts as against the limits of its project; null where there were none. */
  model: OwnModel | null;
  /** By Redis' clock, in milliseconds since the Unix epoch. */
  readonly beganMs: number;
  estimatedTokens: number;
  reservedTokens: number;
  heldMicroUsd: bigint;
  /** Durable, and not in the books yet: nothing runs any more. */
  isSpooled: boolean;
  /** Given back: what was asked for it meanwhile is not added any more. */
  isSettled: boolean;
  standing: Standing;
  /** Redis knows of less than is held. */
  isRaised: boolean;
}

/** What ended of a key, or of a model in a project, that Redis was not told of. */
export interface UntoldUse {
  /** Of a model the slot of its limits. */
  readonly keyId: string;
  readonly tokensPerMinute: number | null;
  /** Requests of the running minute, and their tokens. */
  readonly requests: number;
  readonly tokens: number;
  /** When that minute began, by Redis' clock. */
  readonly beganMs: number;
  /** Names these counts: they are the same however often they are told. */
  readonly message: string;
}
