/** How a replica ended. `stopRequested` distinguishes a requested stop from a crash, which an exit code cannot. */
export interface ReplicaExit {
  readonly stopRequested: boolean;
  /** null if a signal ended the replica, if it never ran, or if the gateway was not its parent. */
  readonly exitCode: number | null;
  readonly signal: string | null;
  /** A code of `startErrors` or of errno if the replica never ran; else null. */
  readonly startErrorCode: string | null;
  /** True if the kernel is known to have killed the replica because memory was short. */
  readonly oomKilled: boolean;
  /** The end of the replica's output, bounded; for finding the cause, never for clients. */
  readonly logTail: string;
  /** The end of stderr only; absent if unknown. */
  readonly errorTail?: string;
}

/** Reasons why a replica never ran, in addition to errno codes such as ENOENT. */
export const startErrors = {
  /** The gateway that began the start does not lead any more. */
  fenceLost: 'FENCE_LOST',
  /** The replica was created and never started by its creator. */
  notStarted: 'NOT_STARTED',
  hostUnreachable: 'HOST_UNREACHABLE',
  imageDenied: 'IMAGE_DENIED',
  imageNotFound: 'IMAGE_NOT_FOUND',
  pullFailed: 'IMAGE_PULL_FAILED',
  /** Docker rejected the start for a reason without its own code. */
  refused: 'CONTAINER_REFUSED',
  /** The engine's file refers to an environment variable that is not set. */
  missingVariable: 'MISSING_VARIABLE',
  mount: 'MOUNT',
  noSuchDevice: 'NO_SUCH_DEVICE',
  noSuitableNode: 'NO_SUITABLE_NODE',
  networkPoolEmpty: 'NETWORK_POOL_EMPTY',
  /** The message of the failed start has the details. */
  unknown: 'UNKNOWN',
} as const;

/** Returns an exit with the given fields; the others are unknown. */
export function replicaExit(known: Partial<ReplicaExit>): ReplicaExit {
  const unknown = { exitCode: null, signal: null, startErrorCode: null, oomKilled: false, logTail: '' };
  return { stopRequested: false, ...unknown, ...known };
}

/**
 * Returns the exit of a replica that never ran, uniform across drivers.
 * @param why for operators
 */
export function failedStart(startErrorCode: string, why: string): ReplicaExit {
  return replicaExit({ startErrorCode, logTail: why });
}

/** @param name of the variable in the engine's file */
export function missingVariable(name: string): ReplicaExit {
  return failedStart(
    startErrors.missingVariable,
    `${name} refers to a variable that is not set in the gateway's environment`,
  );
}

/**
 * Returns the exit of a start that is not wanted any more, or that the next leader repeats: no failure of the engine.
 */
export function calledOffStart(startErrorCode: string | null): ReplicaExit {
  return replicaExit({ stopRequested: true, startErrorCode });
}

/** Returns the code that Node gives a system error. */
export function errorCodeOf(error: unknown): string {
  return error instanceof Error && 'code' in error && typeof error.code === 'string' ? error.code : startErrors.unknown;
}
