/** Something that is wrong with a file of the engines folder. */
export interface EngineFileProblem {
  /** `engines/name.yaml`. */
  readonly file: string;
  /** From 1; null when it is about the whole file or the folder. */
  readonly line: number | null;
  /** `pricing.input_per_million`; null when it is about no single field. */
  readonly field: string | null;
  readonly message: string;
}

/** `engines/foo.yaml:12: pricing.input_per_million: what is wrong` */
export function formatEngineFileProblem({ file, line, field, message }: EngineFileProblem): string {
  return `${file}${line === null ? '' : `:${line}`}: ${field === null ? '' : `${field}: `}${message}`;
}
