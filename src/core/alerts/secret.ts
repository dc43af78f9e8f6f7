import { createHmac, randomBytes } from 'node:crypto';

/** Secrets and signatures of webhooks: https://www.standardwebhooks.com, symmetric. */

const prefix = 'whsec_';
const secretBytes = 32;

/** Creates a secret: `whsec_` and 32 random bytes in base64. */
export const makeWebhookSecret = (): string => prefix + randomBytes(secretBytes).toString('base64');

export interface SignedMessage {
  /** Id that is the same on every attempt. */
  readonly id: string;
  /** Time of this attempt. */
  readonly atMs: number;
  readonly body: string;
  /** Secrets that each sign the message, the current one first. */
  readonly secrets: readonly string[];
}

export function signatureHeaders({ id, atMs, body, secrets }: SignedMessage): Readonly<Record<string, string>> {
  const timestamp = String(Math.floor(atMs / 1000));
  const signed = `${id}.${timestamp}.${body}`;
  const signatures = secrets.map((secret) => {
    const key = Buffer.from(secret.slice(prefix.length), 'base64');
    return `v1,${createHmac('sha256', key).update(signed).digest('base64')}`;
  });
  return { 'webhook-id': id, 'webhook-timestamp': timestamp, 'webhook-signature': signatures.join(' ') };
}
