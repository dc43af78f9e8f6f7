/**
 * Minor releases of vLLM that were tried with this version of Headgate, oldest first, and what Headgate has to know of
 * each beyond the one before. `npm run vllm:diff -- OLD NEW` prints all differences of two installed releases; a test
 * compares this table with the installed ones.
 */
export interface VllmVersion {
  /** Minor release, such as `0.29`. */
  readonly minor: string;
  /** The release that was tried. */
  readonly tried: string;
  /** Differences from the row before that concern Headgate; the first row has none. */
  readonly differs: VllmDifferences;
}

/** Each name of a new or changed thing with what Headgate does about it. */
export interface VllmDifferences {
  readonly routes: Readonly<Record<string, string>>;
  /** Request fields, as `route field`. `src/edge/inference/request/vllm-fields.ts` decides each. */
  readonly fields: Readonly<Record<string, string>>;
  /** Members of `usage` in answers. */
  readonly usage: Readonly<Record<string, string>>;
  readonly metrics: Readonly<Record<string, string>>;
  /** Arguments of `vllm serve`. */
  readonly flags: Readonly<Record<string, string>>;
  readonly aborts: Readonly<Record<string, string>>;
  /** Texts and statuses of errors. */
  readonly failures: Readonly<Record<string, string>>;
}

const none: VllmDifferences = { routes: {}, fields: {}, usage: {}, metrics: {}, flags: {}, aborts: {}, failures: {} };

export const vllmVersions: readonly VllmVersion[] = [{ minor: '0.29', tried: '0.29.0', differs: none }];

/**
 * Returns the minor release of a version as vLLM reports it, such as `0.32` for `0.32.1.dev4+gabc`; null for a text that
 * is no version.
 */
function minorOf(version: string): string | null {
  return /^v?(\d+\.\d+)(?![\d])/.exec(version)?.[1] ?? null;
}

/** True if this version of Headgate was tried with the minor release of a vLLM. */
export function isTriedVllm(version: string): boolean {
  return vllmVersions.some(({ minor }) => minor === minorOf(version));
}
