import { createHash, randomBytes } from 'node:crypto';
import type { Endpoint } from '#base/endpoint.ts';
import type { EngineKind } from '#core/catalog/catalog.ts';

/** One running copy of an engine, as a request needs to know it. */
export interface Replica {
  /** New for every start, so that what is known of an ended process is never taken for its successor's. */
  readonly id: string;
  readonly engineId: string;
  readonly endpoint: Endpoint;
  /** What `model` must say upstream; null when the engine goes by the catalog id. */
  readonly upstreamModel: string | null;
  /** Header lines the engine needs, each with its CRLF; '' when there are none. Holds secrets: not for logs. */
  readonly headerLines: string;
  /** The engine was started so that every frame carries usage, whatever the client asked. */
  readonly forcedUsage: boolean;
  readonly kind: EngineKind;
}

export const replicaIdLength = 15;

/** A name for a new child: the engine's part, so that people see what belongs together, and one that is new. */
export function newReplicaId(engineId: string): string {
  return `${engineKey(engineId)}-${randomBytes(4).toString('hex')}`;
}

export function engineKey(engineId: string): string {
  return createHash('sha256').update(engineId).digest('hex').slice(0, 6);
}
