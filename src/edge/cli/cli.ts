import type { ClientConfig } from '#base/config.ts';
import { readVersion } from '#base/version.ts';
import { importCommands } from '#edge/cli/import/import.ts';
import { createApiClient } from './api-client.ts';
import { chatCommand } from './chat.ts';
import { clusterCommands } from './clusters.ts';
import { codeCommand } from './code.ts';
import { type CliOutput, type Command, exitCodes } from './command.ts';
import { findCommand, nameFirst, parseWords } from './command-line.ts';
import { completionCommand } from './completion.ts';
import { costsCommand } from './costs.ts';
import { engineCommands } from './engines.ts';
import { FailedError, UsageError } from './errors.ts';
import { commandHelp, overview } from './help.ts';
import { holdCommands } from './holds.ts';
import { keyCommands } from './keys.ts';
import { loginCommands } from './login.ts';
import { modelsCommand } from './models.ts';
import { reconcileCommand } from './reconcile.ts';
import { runCommands } from './runs.ts';
import { stackCommands } from './stacks.ts';
import { createTerminal } from './terminal.ts';
import { usageCommands } from './usage.ts';
import { validateCommand } from './validate.ts';
import { walletCommands } from './wallet.ts';

export { type Command, type CommandContext, exitCodes, textFlag } from './command.ts';
export { FailedError, UsageError } from './errors.ts';

/**
 * The commands of `headgate`. They go through the gateway's HTTP API, so that they can do nothing that the API cannot;
 * only what needs no gateway, checking and writing engine files, works on files; and what works on the database itself
 * is handed in by the program. A group of commands is a file that
 * exports a list of them, and one line here.
 */
const commands: readonly Command[] = [
  ...loginCommands,
  modelsCommand,
  chatCommand,
  codeCommand,
  ...keyCommands,
  ...usageCommands,
  ...walletCommands,
  ...engineCommands,
  ...clusterCommands,
  costsCommand,
  ...holdCommands,
  ...stackCommands,
  ...runCommands,
  reconcileCommand,
  validateCommand,
  ...importCommands,
  completionCommand,
];

export interface CliRun extends CliOutput {
  /** Without the program's own name. */
  readonly args: readonly string[];
  readonly config: ClientConfig;
  /** Further commands. */
  readonly commands?: readonly Command[];
}

/** Runs one command. @returns the exit code: 0 done, 1 refused or failed, 2 not a command that exists */
export async function runCli({ args, config, out, err, commands: further = [] }: CliRun): Promise<number> {
  const all = [...commands, ...further];
  const terminal = createTerminal();
  try {
    if (['--version', '-V', 'version'].includes(args[0] ?? '')) {
      out(`headgate ${readVersion()}\n`);
      return exitCodes.ok;
    }
    if (args.every((word) => word === '--json') || ['help', '--help', '-h'].includes(args[0] ?? '')) {
      out(overview(all, args.slice(1)));
      return exitCodes.ok;
    }
    const { command, rest } = findCommand(all, nameFirst(args));
    const { values, positionals } = parseWords(command, rest);
    if (values['help'] === true) {
      out(commandHelp(command));
      return exitCodes.ok;
    }
    return await command.run({
      config,
      out,
      err,
      api: createApiClient(config),
      words: positionals,
      flags: values,
      json: values['json'] === true,
      terminal,
      commands: all,
    });
  } catch (error) {
    if (!(error instanceof FailedError || error instanceof UsageError)) throw error;
    err(`${terminal.paintError('red', 'headgate:')} ${error.message}\n`);
    if (error instanceof FailedError && error.requestId !== null) err(`  request ${error.requestId}\n`);
    return error instanceof UsageError ? exitCodes.usage : exitCodes.failed;
  }
}
