import type { CommandContext, CommandOption } from './command.ts';
import { FailedError, UsageError } from './errors.ts';
import { cleanLine } from './table.ts';

/** The one way in which commands ask before something ends that does not come back. */

export const yesOption: Readonly<Record<'yes', CommandOption>> = {
  yes: { type: 'boolean', short: 'y', about: 'without asking, as scripts need it' },
};

/** What is to end, and what ends with it. */
export interface Ending {
  /** `Revoke the key "laptop" (key_…)?` */
  readonly question: string;
  /** A sentence. */
  readonly consequence: string;
  /** After `nothing was`: `revoked`. */
  readonly done: string;
}

/**
 * Returns where it may go on. A script says --yes: nobody is there to be asked.
 * @throws UsageError where nobody can be asked, FailedError where the answer is no
 */
export async function confirm({ flags, terminal }: CommandContext, ending: Ending): Promise<void> {
  if (flags['yes'] === true) return;
  const question = cleanLine(ending.question);
  const consequence = cleanLine(ending.consequence);
  if (!terminal.isInteractive) {
    throw new UsageError(
      `${question} ${consequence} Nobody can be asked here: --yes does it, nothing was ${ending.done}`,
    );
  }
  const answer = (await terminal.ask(`${terminal.sentence(`${question} ${consequence}`)} [y/N] `)).trim();
  if (!/^y(es)?$/i.test(answer)) throw new FailedError(`nothing was ${ending.done}`);
}
