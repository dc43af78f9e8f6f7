import type { EngineDefinition, LoraAdapter, ServiceTier, TaskType } from '#core/catalog/files/files.ts';

/** A model that clients may name. */
export interface Model {
  readonly id: string;
  readonly name: string;
  /** Further names that requests may use. */
  readonly aliases: readonly string[];
  readonly huggingFaceId: string | null;
  readonly taskType: TaskType;
  /** Longest prompt and answer together, in tokens. */
  readonly contextLength: number;
  readonly enabled: boolean;
  /** Unix seconds at which the catalog first saw the id. */
  readonly createdAt: number;
  readonly ownedBy: string;
  /** Engine that serves the model: for an adapter, the engine of its base. */
  readonly engine: EngineDefinition;
  /** null for the engine's own model. */
  readonly adapter: LoraAdapter | null;
  /** Ids of models that may answer, in this order, if this one cannot. */
  readonly fallbacks: readonly string[];
}

/** A price in effect from a time on; never changed, only succeeded by another version. */
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
