import type { CommandContext } from './command.ts';
import { FailedError } from './errors.ts';

export interface Patience {
  /** Called for each answer. */
  arrived(): void;
  /** Reports the first of several failures. @throws the error if a retry cannot help */
  lost(error: unknown): void;
}

/** Lets a command that goes on until it is ended wait for a gateway that is restarted. */
export function createPatience({ err }: Pick<CommandContext, 'err'>): Patience {
  let isLost = false;
  return {
    arrived: () => void (isLost = false),
    lost(error) {
      if (!(error instanceof FailedError && error.isPassing)) throw error;
      if (!isLost) err(`headgate: ${error.message}; retrying until the gateway answers\n`);
      isLost = true;
    },
  };
}
