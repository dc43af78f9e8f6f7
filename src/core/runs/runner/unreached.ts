/** A port of a node that the run's network could not connect to. */
export interface Unreached {
  readonly host: string;
  readonly port: number;
  /** An errno such as ECONNREFUSED, or words. */
  readonly trouble: string;
}

const linePattern = /^headgate: (\S+), port (\d{1,5}), does not answer \(([^()]{1,80})\)$/;

/** Formats the text as the keeper writes it into the log, after its own name. */
export function unreachedText({ host, port, trouble }: Unreached): string {
  return `${host}, port ${port}, does not answer (${trouble})`;
}

/** Parses the port that a log line reports as unreachable; null for any other line. */
export function readUnreached(line: string): Unreached | null {
  const [, host = '', port = '', trouble = ''] = linePattern.exec(line) ?? [];
  return host === '' ? null : { host, port: Number(port), trouble };
}
