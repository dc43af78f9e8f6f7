import type { EngineHistory } from '#core/fleet/fleet.ts';
import type { GatewayRun } from '#core/gateways/gateways.ts';

/** Current state that is not in the records yet. */
export interface Present {
  /** Milliseconds since the Unix epoch. */
  readonly nowMs: number;
  /** Requests without a record that run or wait here, by model. */
  readonly running: ReadonlyMap<string, number>;
  /** Number of this gateway's records that are not in PostgreSQL. */
  readonly unwritten: number;
  /** Number of other live gateways, whose running requests are unknown here. */
  readonly others: number;
}

/**
 * The part of an hour's requests to an adapter that another base may have had, instead of the one it is assigned to.
 */
export interface MovedAdapter {
  readonly adapter: string;
  readonly hourMs: number;
  readonly from: string;
  readonly to: readonly string[];
  readonly requests: number;
  readonly promptTokens: number;
  readonly completionTokens: number;
}

/** Maximum sizes of requests, by this gateway's settings. */
export interface RequestsMax {
  readonly inFlightMax: number;
  /** Maximum sequences of a generating request: prompts times choices. */
  readonly sequencesMax: number;
  /** Maximum inputs of other requests; `textsMax`: maximum inputs that are texts. */
  readonly inputsMax: number;
  readonly textsMax: number;
}

/** Facts that the records of usage are compared with. */
export interface Known {
  /** Full hours, in milliseconds since the Unix epoch. */
  readonly span: { readonly fromMs: number; readonly toMs: number };
  readonly history: EngineHistory;
  /** Adapters that got another base, with the hour. */
  readonly moved: readonly MovedAdapter[];
  /** Runs of gateways that ended uncleanly. */
  readonly gatewayRuns: readonly GatewayRun[];
  readonly present: Present;
  readonly limits: RequestsMax;
  readonly contextLengthOf: (model: string) => number | null;
}
