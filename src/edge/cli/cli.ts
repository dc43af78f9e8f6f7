import { ConfigError } from '#base/config-error.ts';
import { type ClientConfig, readVersion } from '#base/config/config.ts';
import { chatCommand, codeCommand, loginCommands, modelsCommand } from '#edge/cli/chat/chat.ts';
import { clusterCommands, costBudgetCommands, costsCommand, rateCommands } from '#edge/cli/clusters/clusters.ts';
import { importCommands } from '#edge/cli/import/import.ts';
import { liveCommands } from '#edge/cli/live/live.ts';
import {
  bareGroup,
  cleanText,
  type CliOutput,
  type Command,
  commandHelp,
  commandList,
  completionCommand,
  createApiClient,
  createTerminal,
  exitCodes,
  FailedError,
  findCommand,
  type Flag,
  forTerminal,
  jsonText,
  nameFirst,
  overview,
  parseWords,
  type Terminal,
  UsageError,
} from '#edge/cli/shell/shell.ts';
import { auditCommand } from './audit.ts';
import { batchCommands } from './batches.ts';
import { budgetCommands } from './budgets.ts';
import { engineCommands } from './engines.ts';
import { fileCommands } from './files.ts';
import { holdCommands } from './holds.ts';
import { keyCommands } from './keys.ts';
import { logsCommand } from './logs.ts';
import { namesCommand } from './names.ts';
import { organizationCommands } from './organizations.ts';
import { projectCommands } from './projects.ts';
import { rateLimitCommands } from './rate-limits.ts';
import { reconcileCommand } from './reconcile.ts';
import { runCommands } from '#edge/cli/runs/runs.ts';
import { serviceAccountCommands } from './service-accounts.ts';
import { stackCommands } from './stacks.ts';
import { usageCommands } from './usage.ts';
import { userLinkCommands } from './user-links.ts';
import { userCommands } from './users.ts';
import { validateCommand } from './validate.ts';
import { walletCommands } from './wallet.ts';
import { webhookCommands } from './webhooks.ts';

export {
  type ApiClient,
  createApiClient,
  FailedError,
  UsageError,
  exitCodes,
  textFlag,
  type Command,
  type CommandContext,
  wrap,
} from '#edge/cli/shell/shell.ts';

/**
 * The commands of `headgate`. Commands use the gateway's HTTP API, so that they can do nothing that the API cannot.
 * Only commands that need no gateway, such as checks of engine files, work on files. The program passes in commands
 * that work on the database itself. Each group of commands is a file that exports a list, and one line here.
 */
export const commands: readonly Command[] = [
  ...loginCommands,
  modelsCommand,
  chatCommand,
  codeCommand,
  ...liveCommands,
  logsCommand,
  ...keyCommands,
  ...usageCommands,
  ...walletCommands,
  ...budgetCommands,
  ...engineCommands,
  ...clusterCommands,
  costsCommand,
  ...costBudgetCommands,
  ...rateCommands,
  ...holdCommands,
  ...stackCommands,
  ...runCommands,
  reconcileCommand,
  ...organizationCommands,
  ...userCommands,
  ...userLinkCommands,
  ...projectCommands,
  ...rateLimitCommands,
  ...serviceAccountCommands,
  ...webhookCommands,
  ...batchCommands,
  ...fileCommands,
  auditCommand,
  validateCommand,
  ...importCommands,
  completionCommand,
  namesCommand,
];

export interface CliRun extends CliOutput {
  /** Arguments without the program's own name. */
  readonly args: readonly string[];
  /** @throws ConfigError */
  readonly readConfig: () => ClientConfig;
  /** Further commands, after those above. */
  readonly commands?: readonly Command[];
}

/**
 * Runs one command. @returns the exit code: 0 done, 1 rejected or failed, 2 unknown command or wrong usage, 130 ended
 * by Ctrl-C
 */
export async function runCli({ args, readConfig, commands: further = [], ...output }: CliRun): Promise<number> {
  const all = [...commands, ...further];
  const terminal = createTerminal();
  const { out, err } = saidTo(output, terminal);
  const json = wantsJson(args);
  try {
    if (['--version', '-V', 'version'].includes(args[0] ?? '')) {
      const version = readVersion();
      out(json ? jsonText({ object: 'version', version }) : `headgate ${version}\n`);
      return exitCodes.ok;
    }
    const typed = nameFirst(args);
    const helped = wordsOfHelp(all, args, typed);
    if (helped !== null) {
      out(json ? jsonText(commandList(all, helped)) : overview(all, helped, terminal.columns));
      return exitCodes.ok;
    }
    const group = bareGroup(all, typed);
    if (group !== null && !json) err(`${overview(all, [group], terminal.errorColumns)}\n`);
    const { command, rest } = findCommand(all, typed);
    const { values, positionals, behindDashes } = parseWords(command, rest);
    if (values['help'] === true) {
      out(json ? jsonText(commandList(all, command.name.split(' '))) : commandHelp(command, all, terminal.columns));
      return exitCodes.ok;
    }
    const config = readConfig();
    return await command.run({
      config,
      out,
      err,
      api: createApiClient(config),
      words: positionals,
      behindDashes,
      flags: values,
      json,
      terminal: wideAs(values['wide'], terminal),
      commands: all,
    });
  } catch (error) {
    const { message, requestId, code, exitCode, trace } = tellingOf(error);
    // A script that reads JSON finds the error where it looks for the answer.
    if (json) out(`${JSON.stringify({ error: { message, code, request_id: requestId } })}\n`);
    const sentence = terminal.sentence(`headgate: ${message}`).slice('headgate:'.length);
    err(`${terminal.paintError('red', 'headgate:')}${sentence}\n`);
    if (requestId !== null) err(`  request ${requestId}\n`);
    if (trace !== null) err(`${trace}\n`);
    return exitCode;
  }
}

/** Removes the limit on table width for `--wide`. */
const wideAs = (wide: Flag | undefined, terminal: Terminal): Terminal =>
  wide === true ? { ...terminal, columns: null } : terminal;

/** Returns the first words of the commands to list in the help; null if no help is requested, or help for one. */
function wordsOfHelp(
  all: readonly Command[],
  args: readonly string[],
  typed: readonly string[],
): readonly string[] | null {
  const words = args.filter((word) => word !== '--json');
  if (words.length === 0 || ['help', '--help', '-h'].includes(words[0] ?? '')) return words.slice(1);
  const group = bareGroup(all, typed);
  return group !== null && (typed.includes('--help') || typed.includes('-h')) ? [group] : null;
}

/**
 * Returns the outputs without control characters, since a text may come from a server or a file. A pipe or a file gets
 * standard output unchanged.
 */
function saidTo({ out, err }: CliOutput, { isWatched }: Terminal): CliOutput {
  return {
    out: isWatched ? (text) => out(forTerminal(text)) : out,
    err: (text) => err(forTerminal(text)),
  };
}

/** True if the user asked for JSON. Words behind `--` are for another program. */
function wantsJson(args: readonly string[]): boolean {
  const end = args.indexOf('--');
  return args.slice(0, end === -1 ? args.length : end).includes('--json');
}

interface Telling {
  readonly message: string;
  readonly requestId: string | null;
  readonly code: string;
  readonly exitCode: number;
  /** Stack trace of an unexpected error, for developers; null for an error that a command throws on purpose. */
  readonly trace: string | null;
}

/** Returns the texts and the exit code for an error. */
function tellingOf(error: unknown): Telling {
  if (error instanceof FailedError) {
    const { message, requestId, code, isInterrupted } = error;
    const exitCode = isInterrupted ? exitCodes.interrupted : exitCodes.failed;
    return { message, requestId, code, exitCode, trace: null };
  }
  if (error instanceof UsageError || error instanceof ConfigError) {
    const code = error instanceof UsageError ? 'usage' : 'configuration';
    return { message: error.message, requestId: null, code, exitCode: exitCodes.usage, trace: null };
  }
  // For example an answer that no gateway gives, whose text is in the message.
  const what = error instanceof Error ? error : new Error(String(error));
  const message = cleanText(`unexpected error, in an answer or in the command itself: ${what.message}`);
  const trace = cleanText(
    (what.stack ?? '')
      .split('\n')
      .filter((line) => /^ {4}at /.test(line))
      .join('\n'),
  );
  return { message, requestId: null, code: 'internal', exitCode: exitCodes.failed, trace };
}
