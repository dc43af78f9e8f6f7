/** Messages between the benchmark and its load process. */

/** One load on one server: a number of connections that ask again as soon as they are answered. */
export interface LoadJob {
  readonly port: number;
  readonly authorization: string | null;
  readonly body: string;
  readonly connections: number;
  /** Over which the connections begin. */
  readonly rampMs: number;
  /** After which a connection asks no more; 0 asks once. */
  readonly durationMs: number;
  /** Events that a stream must have, `[DONE]` not counted; null for JSON answers. */
  readonly events: number | null;
}

export interface LoadReport {
  /** Answers that were whole and right. */
  readonly completed: number;
  readonly failed: number;
  readonly firstFault: string | null;
  readonly elapsedMs: number;
  readonly totalP50Ms: number;
  readonly totalP99Ms: number;
  /** From the request to a stream's first event. */
  readonly firstP50Ms: number;
  readonly firstP99Ms: number;
  /** From a stream's finish event to the end of its answer. */
  readonly tailP50Ms: number;
  readonly tailP99Ms: number;
}

/** The content frames since the window before, and how long they were on their way from the engine. */
export interface Window {
  readonly frames: number;
  readonly delayP50Ms: number;
  readonly delayP99Ms: number;
}

export type LoadRequest = { readonly kind: 'job'; readonly job: LoadJob } | { readonly kind: 'window' };
export type LoadMessage =
  | { readonly kind: 'report'; readonly report: LoadReport }
  | { readonly kind: 'window'; readonly window: Window };
