import type { ClientConfig } from '#base/config/config.ts';
import type { ApiClient } from './api-client.ts';
import { UsageError } from './errors.ts';
import type { Terminal } from './terminal.ts';

/** Output streams of a command. */

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
  /** The last words: those behind `--`. */
  readonly behindDashes: readonly string[];
  readonly flags: Readonly<Record<string, Flag | undefined>>;
  /** True to print JSON for scripts instead of text for people. */
  readonly json: boolean;
  /** All commands of `headgate`, for commands that list them. */
  readonly commands: readonly Command[];
}

/** Kinds of names that a shell completes by asking the gateway. */
export const namedThings = ['models', 'engines', 'clusters', 'stacks', 'runs', 'keys'] as const;
export type NamedThing = (typeof namedThings)[number];

/** A list where the option may be given several times. */
export type Flag = string | boolean | (string | boolean)[];

/** An option for parseArgs of node:util, with its texts and completions. */
export interface CommandOption {
  readonly type: 'string' | 'boolean';
  readonly short?: string;
  readonly multiple?: boolean;
  /** Allowed values; any value if absent. */
  readonly choices?: readonly string[];
  /** Short description of the option or its value. */
  readonly about: string;
  /** Kind of the gateway's names that a shell may offer for the value. */
  readonly names?: NamedThing;
}

export interface Command {
  /** `engines logs`: group and name, or one word. */
  readonly name: string;
  /** Words and options after the name: `ID [--tail N]`. */
  readonly usage: string;
  readonly summary: string;
  /** Fewest and most words. */
  readonly words: { readonly min: number; readonly max: number };
  readonly options: Readonly<Record<string, CommandOption>>;
  /** Options that the command does not have, with what to do instead. */
  readonly refused?: Readonly<Record<string, string>>;
  /** Allowed values of the first word; any value if absent. */
  readonly choices?: readonly string[];
  /** Kind of the gateway's names that a shell may offer for the first word. */
  readonly names?: NamedThing;
  /** @returns the exit code: 0, or 1 if the answer is negative, 130 if Ctrl-C ended the command */
  run(context: CommandContext): Promise<number>;
}

/** Options of every command. */
export const globalOptions = {
  json: { type: 'boolean', about: 'print JSON, for scripts' },
  wide: { type: 'boolean', about: 'print all columns of a table' },
  help: { type: 'boolean', short: 'h', about: 'print this help' },
} as const satisfies Record<string, CommandOption>;

/** `interrupted`: ended by Ctrl-C; the exit code of shells for a program that SIGINT ended. */
export const exitCodes = { ok: 0, failed: 1, usage: 2, interrupted: 130 } as const;

/** Returns the values of a flag that may be repeated. */
export function listFlag({ flags }: Pick<CommandContext, 'flags'>, name: string): readonly string[] {
  const value = flags[name];
  return Array.isArray(value) ? (value as readonly string[]) : [];
}

/** Returns a flag's text; null if the flag is absent. */
export function textFlag({ flags }: Pick<CommandContext, 'flags'>, name: string): string | null {
  const value = flags[name];
  return typeof value === 'string' ? value : null;
}

/** Returns the texts of an option that may be repeated. */
export function textFlags({ flags }: Pick<CommandContext, 'flags'>, name: string): readonly string[] {
  const value = flags[name];
  return Array.isArray(value) ? value.filter((one) => typeof one === 'string') : [];
}

const secondsOf = { s: 1, m: 60, h: 3600, d: 86_400 } as const;

/** Returns the seconds of a duration such as `24h`; null without the option. @throws UsageError */
export function durationFlag(context: Pick<CommandContext, 'flags'>, name: string): number | null {
  const value = textFlag(context, name);
  if (value === null) return null;
  const [, digits, unit] = /^(\d{1,9})([smhd])$/.exec(value) ?? [];
  if (digits === undefined) throw new UsageError(`--${name} must be a duration such as 0s, 30m, 24h or 7d`);
  return Number(digits) * secondsOf[unit as keyof typeof secondsOf];
}
