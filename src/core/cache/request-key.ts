import { createHash } from 'node:crypto';

/** Properties that two requests must share for one answer to serve both. */
export interface RequestIdentity {
  readonly organizationId: string;
  /** Catalog id, whatever name the request used. */
  readonly model: string;
  /** Changes when the engine's file changes. */
  readonly engineHash: string;
  /** Path such as /v1/chat/completions. */
  readonly endpoint: string;
  /** Digest of the body's fields without `formFields`, by `digestMembers`. */
  readonly meaning: string;
}

/** Fields that only affect how, or for whom, an answer is sent, and not its content. */
export const formFields = ['model', 'stream', 'stream_options', 'user', 'metadata', 'usage'] as const;

/** Returns the key of an answer: a SHA-256 over the identity, hexadecimal. */
export function requestKey({ organizationId, model, engineHash, endpoint, meaning }: RequestIdentity): string {
  const identity = [organizationId, model, engineHash, endpoint, meaning];
  return createHash('sha256').update(JSON.stringify(identity)).digest('hex');
}
