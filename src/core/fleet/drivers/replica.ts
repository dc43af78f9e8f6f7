import { createHash, randomBytes } from 'node:crypto';
import type { Endpoint } from '#base/net/net.ts';
import type { EngineKind } from '#core/catalog/catalog.ts';

/** One running copy of an engine, with what a request needs to know. */
export interface Replica {
  /** New for every start, so that knowledge about an ended process is never applied to its successor. */
  readonly id: string;
  readonly engineId: string;
  readonly endpoint: Endpoint;
  /** Value of `model` in upstream requests; null if the engine uses the catalog id. */
  readonly upstreamModel: string | null;
  /** Header lines that the engine requires, each with its CRLF; '' if none. Contains secrets: never log. */
  readonly headerLines: string;
  /** True if the engine was started so that every frame carries usage, whatever the client asked. */
  readonly forcedUsage: boolean;
  readonly kind: EngineKind;
  /** Deployment of the engine's file that the replica is; absent where the file lists none. */
  readonly deployment?: ReplicaDeployment;
  /** Why aborts by id cannot be relied on, in a sentence; null or absent: the gateway uses them. */
  readonly abortFault?: string | null;
}

export interface ReplicaDeployment {
  /** Name for operators. */
  readonly name: string;
  /** Share of the requests, relative to the engine's other deployments. */
  readonly weight: number;
}

export const replicaIdLength = 15;

/** Returns a new replica id: the engine's key, so that people see which replicas belong together, and a random part. */
export function newReplicaId(engineId: string): string {
  return `${engineKey(engineId)}-${randomBytes(4).toString('hex')}`;
}

export function engineKey(engineId: string): string {
  return createHash('sha256').update(engineId).digest('hex').slice(0, 6);
}
