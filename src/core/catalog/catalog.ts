import type { EngineDefinition, TaskType } from './engine-definition.ts';

export type {
  AllowableField,
  EngineDefinition,
  EngineKind,
  EnginePricing,
  ExternalDriverSettings,
  ProcessDriverSettings,
  TaskType,
} from './engine-definition.ts';
export { allowableFields, taskTypes } from './engine-definition.ts';

/** A model that clients may name. */
export interface Model {
  readonly id: string;
  readonly name: string;
  readonly huggingFaceId: string;
  readonly taskType: TaskType;
  /** Tokens. */
  readonly contextLength: number;
  readonly enabled: boolean;
  /** Unix seconds at which the catalog first saw the id. */
  readonly createdAt: number;
  readonly ownedBy: string;
  readonly engine: EngineDefinition;
}

/** A price as it held from a moment on; never changed, only followed by another version. */
export interface PriceVersion {
  readonly id: string;
  readonly modelId: string;
  readonly inputPerMTokMicroUsd: bigint;
  readonly cachedInputPerMTokMicroUsd: bigint;
  readonly outputPerMTokMicroUsd: bigint;
  readonly currency: 'USD';
  readonly effectiveFrom: Date;
}

export interface Catalog {
  /** Writes models and prices to the database; a new price version only where prices differ from the newest. */
  sync(): Promise<void>;
  /** By catalog id, display name or Hugging Face id, without regard to case; disabled models too. */
  find(name: string): Model | undefined;
  /** Every model of the files, disabled ones too, in the order of their ids. */
  list(): readonly Model[];
  /** The enabled models of one task type, in the order of their ids. */
  byTask(taskType: TaskType): readonly Model[];
  /** The price in force; undefined when the engine's file has none. */
  price(modelId: string): PriceVersion | undefined;
}
