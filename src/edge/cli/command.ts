import type { ParseArgsOptionsConfig } from 'node:util';
import type { ClientConfig } from '#base/config.ts';
import type { ApiClient } from './api-client.ts';

/** What a command gets to work with, and how it says that something went wrong. */

export interface CliOutput {
  readonly out: (text: string) => void;
  readonly err: (text: string) => void;
}

export interface CommandContext extends CliOutput {
  readonly config: ClientConfig;
  readonly api: ApiClient;
  /** Words after the command's name. */
  readonly words: readonly string[];
  readonly flags: Readonly<Record<string, string | boolean | readonly string[] | undefined>>;
  /** Print JSON for scripts instead of words for people. */
  readonly json: boolean;
}

export interface Command {
  /** `engines logs`: group and name, or one word. */
  readonly name: string;
  /** What follows the name: `ID [--tail N]`. */
  readonly usage: string;
  readonly summary: string;
  /** How many words it takes. */
  readonly words: { readonly min: number; readonly max: number };
  readonly options: ParseArgsOptionsConfig;
  /** @returns the exit code: 0, or 1 where what was asked about is not as it should be */
  run(context: CommandContext): Promise<number>;
}

export const exitCodes = { ok: 0, failed: 1, usage: 2 } as const;

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
