import { createHash } from 'node:crypto';

/** Idempotency key of a form with its values: a form that is sent again with other values is another request. */
export const onceOf = (once: string, body: object): string =>
  createHash('sha256')
    .update(`${once}\n${JSON.stringify(body)}`)
    .digest('hex');
