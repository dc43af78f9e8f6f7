import type { Log } from '#base/log.ts';

/** An engine's answer with an error status. */
export interface EngineRefusalText {
  readonly requestId: string;
  readonly replicaId: string;
  readonly status: number;
  /** Body as latin1. */
  readonly text: string;
}

const charsMax = 300;

/**
 * Logs the engine's text about rejected requests, for operators who chose that: the text often quotes the prompt, and
 * clients never get it. The text is shortened, and on one line.
 */
export function createEngineTextLog(log: Log): (refusal: EngineRefusalText) => void {
  return ({ requestId, replicaId, status, text }) => {
    log.warn(
      { requestId, replicaId, engineStatus: status, engineText: shortened(text) },
      'an engine rejected a request',
    );
  };
}

function shortened(latin1: string): string {
  // A UTF-8 character has at most four bytes.
  const text = Buffer.from(latin1.slice(0, 4 * charsMax), 'latin1').toString('utf8');
  const chars = Array.from(text.replaceAll(/[\s\p{C}]+/gu, ' ').trim());
  return chars.length <= charsMax ? chars.join('') : `${chars.slice(0, charsMax - 1).join('')}…`;
}
