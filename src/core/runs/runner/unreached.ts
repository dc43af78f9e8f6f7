/** A port of a node that the network of a run could not be connected with. */
export interface Unreached {
  readonly host: string;
  readonly port: number;
  /** An errno such as ECONNREFUSED, or words. */
  readonly trouble: string;
}

const linePattern = /^headgate: (\S+), port (\d{1,5}), does not answer \(([^()]{1,80})\)$/;

/** As the keeper of a phase writes it into the log, behind its own name. */
export function unreachedText({ host, port, trouble }: Unreached): string {
  return `${host}, port ${port}, does not answer (${trouble})`;
}

/** What a line of a log says of a port; null for any other line. */
export function readUnreached(line: string): Unreached | null {
  const [, host = '', port = '', trouble = ''] = linePattern.exec(line) ?? [];
  return host === '' ? null : { host, port: Number(port), trouble };
}
