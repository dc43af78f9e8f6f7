import { type CliResult, runHere } from './run-cli.ts';

export interface Place {
  readonly url: string;
  readonly key: string;
}

/** Runs `headgate` with these words in this process: for many commands, where a process each takes long. */
export function say(args: readonly string[], { url, key }: Place): Promise<CliResult> {
  return runHere(args, { HEADGATE_URL: url, HEADGATE_API_KEY: key });
}
