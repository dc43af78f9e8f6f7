import type { EngineDefinition, LoraAdapter, ServiceTier, TaskType } from './engine-definition.ts';

/** A model that clients may name. */
export interface Model {
  readonly id: string;
  readonly name: string;
  /** Further names that requests may use. */
  readonly aliases: readonly string[];
  readonly huggingFaceId: string | null;
  readonly taskType: TaskType;
  /** Tokens. */
  readonly contextLength: number;
  readonly enabled: boolean;
  /** Unix seconds at which the catalog first saw the id. */
  readonly createdAt: number;
  readonly ownedBy: string;
  /** What serves it: for an adapter, the engine of its base. */
  readonly engine: EngineDefinition;
  /** null for the engine's own model. */
  readonly adapter: LoraAdapter | null;
  /** Ids of models that may answer where this one cannot, in this order. */
  readonly fallbacks: readonly string[];
}

/** A price as it held from a moment on; never changed, only followed by another version. */
export interface PriceVersion {
  readonly id: string;
  readonly modelId: string;
  readonly tier: ServiceTier;
  readonly inputPerMTokMicroUsd: bigint;
  readonly cachedInputPerMTokMicroUsd: bigint;
  readonly outputPerMTokMicroUsd: bigint;
  readonly currency: 'USD';
  readonly effectiveFrom: Date;
}
