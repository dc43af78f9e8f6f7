/** How a replica ended. `stopRequested` tells a stop that was wanted from a crash, which an exit code cannot. */
export interface ReplicaExit {
  readonly stopRequested: boolean;
  /** null when a signal ended it, when it never ran, or when the gateway was not its parent. */
  readonly exitCode: number | null;
  readonly signal: string | null;
  /** One of `startErrors` or of errno when it never came to run; else null. */
  readonly startErrorCode: string | null;
  /** Proven: the kernel ended it because memory was short. */
  readonly oomKilled: boolean;
  /** The end of what it wrote, bounded; for finding the cause, never for clients. */
  readonly logTail: string;
  /** The end of what it wrote on stderr alone; absent where that is not known. */
  readonly errorTail?: string;
}

/** Why a replica never came to run, beside the codes of errno such as ENOENT. */
export const startErrors = {
  /** The gateway that began the start leads no more. */
  fenceLost: 'FENCE_LOST',
  /** It was made, and whoever made it did not come to start it. */
  notStarted: 'NOT_STARTED',
  hostUnreachable: 'HOST_UNREACHABLE',
  imageDenied: 'IMAGE_DENIED',
  imageNotFound: 'IMAGE_NOT_FOUND',
  pullFailed: 'IMAGE_PULL_FAILED',
  /** Docker refused it for a reason that has no code of its own. */
  refused: 'CONTAINER_REFUSED',
  /** The engine's file refers to an environment variable that is not set. */
  missingVariable: 'MISSING_VARIABLE',
  mount: 'MOUNT',
  noSuchDevice: 'NO_SUCH_DEVICE',
  noSuitableNode: 'NO_SUITABLE_NODE',
  networkPoolEmpty: 'NETWORK_POOL_EMPTY',
  /** The words of the failed start say more. */
  unknown: 'UNKNOWN',
} as const;

/** An exit of which only this is known. */
export function replicaExit(known: Partial<ReplicaExit>): ReplicaExit {
  const unknown = { exitCode: null, signal: null, startErrorCode: null, oomKilled: false, logTail: '' };
  return { stopRequested: false, ...unknown, ...known };
}

/**
 * The end of a replica that never came to run, the same from every driver.
 * @param why for operators
 */
export function failedStart(startErrorCode: string, why: string): ReplicaExit {
  return replicaExit({ startErrorCode, logTail: why });
}

/** @param name of the variable in the engine's file */
export function missingVariable(name: string): ReplicaExit {
  return failedStart(
    startErrors.missingVariable,
    `${name} refers to a variable that is not set where the gateway runs`,
  );
}

/** A start that nobody wants any more, or that the next leader makes again: no failure of the engine. */
export function calledOffStart(startErrorCode: string | null): ReplicaExit {
  return replicaExit({ stopRequested: true, startErrorCode });
}

/** The code that Node gives an error of the system. */
export function errorCodeOf(error: unknown): string {
  return error instanceof Error && 'code' in error && typeof error.code === 'string' ? error.code : startErrors.unknown;
}
