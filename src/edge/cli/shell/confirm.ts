import type { CommandContext, CommandOption } from './command.ts';
import { FailedError, UsageError } from './errors.ts';
import { cleanLine } from './table.ts';

/** Option that skips the confirmation before something is ended permanently. */

export const yesOption: Readonly<Record<'yes', CommandOption>> = {
  yes: { type: 'boolean', short: 'y', about: 'skip the confirmation, for scripts' },
};

/** Texts of a confirmation: what ends, and with which consequence. */
export interface Ending {
  /** Question such as `Revoke the key "laptop" (key_…)?` */
  readonly question: string;
  /** Consequence, as a sentence. */
  readonly consequence: string;
  /** Participle that follows `nothing was`: `revoked`. */
  readonly done: string;
}

/**
 * Asks for confirmation, and returns if the command may go on. A script passes --yes, since nobody can answer.
 * @throws UsageError if nobody can be asked, FailedError if the answer is no
 */
export async function confirm({ flags, terminal }: CommandContext, ending: Ending): Promise<void> {
  if (flags['yes'] === true) return;
  const question = cleanLine(ending.question);
  const consequence = cleanLine(ending.consequence);
  if (!terminal.isInteractive) {
    throw new UsageError(
      `${question} ${consequence} There is no terminal to confirm on, so nothing was ${ending.done}; add --yes`,
    );
  }
  const answer = (await terminal.ask(`${terminal.sentence(`${question} ${consequence}`)} [y/N] `)).trim();
  if (!/^y(es)?$/i.test(answer)) throw new FailedError(`nothing was ${ending.done}`);
}
