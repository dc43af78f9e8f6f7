import type { EngineDefinition, EngineKind, LoraAdapter, ServiceTier, TaskType } from '#core/catalog/files/files.ts';

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
  /** Version of vLLM that the engine last reported, such as `0.32.0`, of several the oldest; null if unknown. */
  readonly version: string | null;
  /** null for the engine's own model. */
  readonly adapter: LoraAdapter | null;
  /** Ids of models that may answer, in this order, if this one cannot. */
  readonly fallbacks: readonly string[];
}

/** Facts that an engine shows while it runs. */
export interface ShownEngine {
  readonly kind: EngineKind;
  /** As `version` of a model. */
  readonly version: string | null;
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
