import { pino, type DestinationStream, type Logger } from 'pino';

export type Log = Logger;

/**
 * JSON lines on stdout. Fields that could carry a secret are cut out wherever they stand one or two levels deep;
 * code is expected not to hand them over in the first place.
 */
export function createLog(level: string, destination?: DestinationStream): Log {
  const secretFields = ['secret', 'password', 'authorization', 'apiKey', 'databaseUrl', 'redisUrl'];
  const options = {
    level,
    base: null,
    redact: { paths: secretFields.flatMap((name) => [name, `*.${name}`, `*.*.${name}`]), remove: true },
  };
  return destination === undefined ? pino(options) : pino(options, destination);
}
