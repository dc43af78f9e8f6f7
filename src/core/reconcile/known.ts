import type { EngineHistory } from '#core/fleet/fleet.ts';
import type { GatewayRun } from '#core/gateways/gateways.ts';

/** What is known of the present that no book has yet. */
export interface Present {
  /** Milliseconds since the Unix epoch. */
  readonly nowMs: number;
  /** By model: requests that run or wait here, and have no record. */
  readonly running: ReadonlyMap<string, number>;
  /** Records of this gateway that are not in PostgreSQL. */
  readonly unwritten: number;
  /** Other gateways that live, and whose requests are not known here. */
  readonly others: number;
}

/** What of an hour's requests to an adapter another base may have had than the one that they stand with. */
export interface MovedAdapter {
  readonly adapter: string;
  readonly hourMs: number;
  readonly from: string;
  readonly to: readonly string[];
  readonly requests: number;
  readonly promptTokens: number;
  readonly completionTokens: number;
}

/** What requests may be, by the settings of this gateway. */
export interface RequestsMax {
  readonly inFlightMax: number;
  /** Prompts times choices of one that generates. */
  readonly sequencesMax: number;
  /** Inputs of one that does not, and those that are texts. */
  readonly inputsMax: number;
  readonly textsMax: number;
}

/** What the books of usage are held against. */
export interface Known {
  /** Full hours, in milliseconds since the Unix epoch. */
  readonly span: { readonly fromMs: number; readonly toMs: number };
  readonly history: EngineHistory;
  /** Hours in which adapters got another base. */
  readonly moved: readonly MovedAdapter[];
  /** Those that ended uncleanly. */
  readonly gatewayRuns: readonly GatewayRun[];
  readonly present: Present;
  readonly limits: RequestsMax;
  readonly contextLengthOf: (model: string) => number | null;
}
