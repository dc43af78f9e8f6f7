import { parseClientConfig } from '#base/config.ts';
import { runCli } from '#edge/cli/cli.ts';
import type { CliResult } from './run-cli.ts';

export interface Place {
  readonly url: string;
  readonly key: string;
}

/** What `headgate` says, typed with these words, in this process: for many commands, where a process each takes long. */
export async function say(args: readonly string[], { url, key }: Place): Promise<CliResult> {
  const said = { stdout: '', stderr: '' };
  const code = await runCli({
    args,
    readConfig: () => parseClientConfig({ HEADGATE_URL: url, HEADGATE_API_KEY: key }),
    out: (text) => void (said.stdout += text),
    err: (text) => void (said.stderr += text),
  });
  return { code, ...said };
}
