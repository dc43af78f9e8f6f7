import { createHash } from 'node:crypto';

/** What two requests must have in common for one answer to serve both. */
export interface RequestIdentity {
  readonly organizationId: string;
  /** Catalog id, whatever name the request used. */
  readonly model: string;
  /** Changes when the engine's file does. */
  readonly engineHash: string;
  /** Path such as /v1/chat/completions. */
  readonly endpoint: string;
  /** The digest of the body's fields without `formFields`, by `digestMembers`. */
  readonly meaning: string;
}

/** Fields that say how an answer is sent, or for whom, and nothing of what it says. */
export const formFields = ['model', 'stream', 'stream_options', 'user', 'metadata', 'usage'] as const;

/** The key under which an answer is kept: a SHA-256 over the identity, hexadecimal. */
export function requestKey({ organizationId, model, engineHash, endpoint, meaning }: RequestIdentity): string {
  const identity = [organizationId, model, engineHash, endpoint, meaning];
  return createHash('sha256').update(JSON.stringify(identity)).digest('hex');
}
