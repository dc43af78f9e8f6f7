/** A version of an adapter's base, as the database has it. */
export interface DatedBase {
  readonly adapterId: string;
  /** Null: a model of its own. */
  readonly baseId: string | null;
  readonly effectiveFrom: Date;
}

/** Milliseconds since the Unix epoch; `toMs` is not in it. */
interface Span {
  readonly fromMs: number;
  readonly toMs: number;
}

/** Which engines have served models when: their own, or for LoRA adapters that of the base of the time. */
export interface AdapterBases {
  /** Ids of models that are or were adapters. */
  readonly adapters: readonly string[];
  /**
   * Ids of the models whose engines may have served this one within a span, each once, oldest first; at least one. Before
   * its first version it had that one as well.
   */
  within(modelId: string, span: Span): readonly string[];
  /** The one at a moment, by the files alone. */
  at(modelId: string, atMs: number): string;
  /** When adapters got another base, within a span. Milliseconds since the Unix epoch. */
  moves(span: Span): readonly number[];
}

/** Clocks of gateways differ, and each reads the files in its own time: for so long a base may be the one before. */
const moveMs = 60_000;

/** @param versions by adapter, oldest first */
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
