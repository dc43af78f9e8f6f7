/** A version of an adapter's base, as stored in the database. */
export interface DatedBase {
  readonly adapterId: string;
  /** Null: the model is no adapter and is served by its own engine. */
  readonly baseId: string | null;
  readonly effectiveFrom: Date;
}

/** A time span in milliseconds since the Unix epoch; `toMs` is exclusive. */
interface Span {
  readonly fromMs: number;
  readonly toMs: number;
}

/**
 * History of the engines that served each model: the model's own, or for LoRA adapters that of the base at the time.
 */
export interface AdapterBases {
  /** Ids of models that are or were adapters. */
  readonly adapters: readonly string[];
  /**
   * Returns the ids of the models whose engines may have served a model within a span: at least one, each once, oldest
   * first. The first version also applies to the time before it.
   */
  within(modelId: string, span: Span): readonly string[];
  /** Returns the id of the model whose engine serves a model at a time, without the tolerance of `within`. */
  at(modelId: string, atMs: number): string;
  /** Returns the times within a span at which adapters got another base, in milliseconds since the Unix epoch. */
  moves(span: Span): readonly number[];
}

/**
 * Milliseconds after a move in which the previous base may still serve: clocks of gateways differ, and each gateway
 * reloads its files at its own time.
 */
const moveMs = 60_000;

/** @param versions of each adapter, oldest first */
export function createAdapterBases(versions: readonly DatedBase[]): AdapterBases {
  const byAdapter = Map.groupBy(versions, ({ adapterId }) => adapterId);
  return {
    adapters: [...byAdapter.keys()],
    within(modelId, { fromMs, toMs }) {
      const own = byAdapter.get(modelId) ?? [];
      const held = own.filter(({ effectiveFrom }, place) => {
        const next = own[place + 1]?.effectiveFrom.getTime() ?? Infinity;
        return (place === 0 || effectiveFrom.getTime() < toMs) && next + moveMs > fromMs;
      });
      return held.length === 0 ? [modelId] : [...new Set(held.map(({ baseId }) => baseId ?? modelId))];
    },
    at(modelId, atMs) {
      const own = byAdapter.get(modelId) ?? [];
      const held = own.findLast(({ effectiveFrom }) => effectiveFrom.getTime() <= atMs) ?? own[0];
      return held?.baseId ?? modelId;
    },
    moves({ fromMs, toMs }) {
      const later = [...byAdapter.values()].flatMap((own) => own.slice(1));
      return later.map(({ effectiveFrom }) => effectiveFrom.getTime()).filter((ms) => ms >= fromMs && ms < toMs);
    },
  };
}
