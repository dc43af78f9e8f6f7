/** A problem of a file of the engines folder. */
export interface EngineFileProblem {
  /** File name, such as `engines/name.yaml`. */
  readonly file: string;
  /** Line number from 1; null for a problem of the whole file or the folder. */
  readonly line: number | null;
  /** Field such as `pricing.input_per_million`; null for a problem of no single field. */
  readonly field: string | null;
  readonly message: string;
}

/** Formats a problem as `engines/foo.yaml:12: pricing.input_per_million: message`. */
export function formatEngineFileProblem({ file, line, field, message }: EngineFileProblem): string {
  return `${file}${line === null ? '' : `:${line}`}: ${field === null ? '' : `${field}: `}${message}`;
}
