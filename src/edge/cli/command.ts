import type { ClientConfig } from '#base/config.ts';
import type { ApiClient } from './api-client.ts';
import type { Terminal } from './terminal.ts';

/** What a command gets to work with, and how it says that something went wrong. */

export interface CliOutput {
  readonly out: (text: string) => void;
  readonly err: (text: string) => void;
}

export interface CommandContext extends CliOutput {
  readonly config: ClientConfig;
  readonly api: ApiClient;
  readonly terminal: Terminal;
  /** Words after the command's name. */
  readonly words: readonly string[];
  /** The last of them: those behind `--`. */
  readonly behindDashes: readonly string[];
  readonly flags: Readonly<Record<string, Flag | undefined>>;
  /** Print JSON for scripts instead of words for people. */
  readonly json: boolean;
  /** All that `headgate` can do, for commands that are about that. */
  readonly commands: readonly Command[];
}

/** What a shell asks the gateway for, while somebody types. */
export const namedThings = ['models', 'engines', 'clusters', 'stacks', 'runs', 'keys'] as const;
export type NamedThing = (typeof namedThings)[number];

/** A list where the option may be given several times. */
export type Flag = string | boolean | (string | boolean)[];

/** An option as parseArgs of node:util takes it, and what else is known of it. */
export interface CommandOption {
  readonly type: 'string' | 'boolean';
  readonly short?: string;
  readonly multiple?: boolean;
  /** What it may be; anything where absent. */
  readonly choices?: readonly string[];
  /** What it does, or may be, in a few words. */
  readonly about: string;
  /** Names of the gateway's that a shell may offer for it. */
  readonly names?: NamedThing;
}

export interface Command {
  /** `engines logs`: group and name, or one word. */
  readonly name: string;
  /** What follows the name: `ID [--tail N]`. */
  readonly usage: string;
  readonly summary: string;
  /** How many words it takes. */
  readonly words: { readonly min: number; readonly max: number };
  readonly options: Readonly<Record<string, CommandOption>>;
  /** Options that it does not have, and what to do in their place. */
  readonly refused?: Readonly<Record<string, string>>;
  /** What the first word may be; anything where absent. */
  readonly choices?: readonly string[];
  /** Names of the gateway's that a shell may offer for the first word. */
  readonly names?: NamedThing;
  /** @returns the exit code: 0, or 1 where what was asked about is not as it should be, 130 where Ctrl-C ended it */
  run(context: CommandContext): Promise<number>;
}

/** Options of every command. */
export const globalOptions = {
  json: { type: 'boolean', about: 'JSON for scripts' },
  wide: { type: 'boolean', about: 'all columns of a table, however wide' },
  help: { type: 'boolean', short: 'h', about: 'how it is used' },
} as const satisfies Record<string, CommandOption>;

/** `interrupted`: by Ctrl-C, as shells have it of what SIGINT ended. */
export const exitCodes = { ok: 0, failed: 1, usage: 2, interrupted: 130 } as const;

/** What a flag that may be repeated was given. */
export function listFlag({ flags }: Pick<CommandContext, 'flags'>, name: string): readonly string[] {
  const value = flags[name];
  return Array.isArray(value) ? (value as readonly string[]) : [];
}

/** A flag's text; null where it was not given. */
export function textFlag({ flags }: Pick<CommandContext, 'flags'>, name: string): string | null {
  const value = flags[name];
  return typeof value === 'string' ? value : null;
}

/** The texts of an option that may be given several times. */
export function textFlags({ flags }: Pick<CommandContext, 'flags'>, name: string): readonly string[] {
  const value = flags[name];
  return Array.isArray(value) ? value.filter((one) => typeof one === 'string') : [];
}
