import { readClientConfig } from '#base/config/config.ts';
import { runCli } from '#edge/cli/cli.ts';
import { machineCommands } from './machine-commands.ts';

/** Connects the command `headgate` to its output and exit code; everything else is in edge/cli. */

/**
 * Ends the process when its output cannot be written. A reader may close the pipe early, which is no error:
 * `headgate engines logs -f chat | head`.
 */
function end({ code }: NodeJS.ErrnoException): never {
  if (code === 'EPIPE') process.exit(0);
  process.stderr.write(`headgate: the output cannot be written (${code ?? 'unknown reason'})\n`);
  process.exit(1);
}

process.stdout.on('error', end);
process.stderr.on('error', ({ code }: NodeJS.ErrnoException) => process.exit(code === 'EPIPE' ? 0 : 1));
process.exitCode = await runCli({
  args: process.argv.slice(2),
  readConfig: readClientConfig,
  commands: machineCommands,
  out: (text) => void process.stdout.write(text),
  err: (text) => void process.stderr.write(text),
});
