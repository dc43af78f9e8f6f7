import {
  type Command,
  type CommandContext,
  durationFlag,
  exitCodes,
  jsonText,
  parseAnswer,
  textFlag,
  UsageError,
} from '#edge/cli/shell/shell.ts';
import { run, runPath, runText } from './run-follow.ts';

/** Changes when the resources of a run are destroyed. */

/** Seconds of 3650 days: the API accepts no later time. */
const inSecondsMax = 3650 * 86_400;

async function change(context: CommandContext): Promise<number> {
  const [inSeconds, at] = [durationFlag(context, 'in'), textFlag(context, 'at')];
  const isNever = context.flags['never'] === true;
  if ([inSeconds !== null, at !== null, isNever].filter(Boolean).length !== 1)
    throw new UsageError('give one of --in, --at and --never');
  if (inSeconds !== null && inSeconds > inSecondsMax) throw new UsageError('--in must be at most 3650d');
  const expiresAt = inSeconds === null ? at : new Date(Date.now() + inSeconds * 1000).toISOString();
  const answer = await context.api.call('PATCH', runPath(context.words[0]), { body: { expires_at: expiresAt } });
  context.out(context.json ? jsonText(answer) : runText(await parseAnswer(run, answer)));
  return exitCodes.ok;
}

export const runExpiryCommand: Command = {
  name: 'runs expiry',
  usage: 'RUN --in 3d|--at TIME|--never',
  summary: 'Change when Headgate destroys the resources of an applied run.',
  words: { min: 1, max: 1 },
  names: 'runs',
  options: {
    in: { type: 'string', about: 'from now: 30m, 8h, 3d' },
    at: { type: 'string', about: 'a time such as 2026-11-25T18:00:00Z' },
    never: { type: 'boolean', about: 'keep the resources' },
  },
  run: change,
};
