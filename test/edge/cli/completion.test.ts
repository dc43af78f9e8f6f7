import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { describe, expect, it } from 'vitest';
import { offerNames } from '#test/cli/offered-names.ts';
import { runCli, useFolders } from '#test/cli/run-cli.ts';

const run = promisify(execFile);
const folders = useFolders();

/** Bash's suggestions for a line, with its last word typed this far. */
async function offers(script: string, line: string, env: Readonly<Record<string, string>> = {}): Promise<string[]> {
  const words = line.split(' ');
  const program = `${script}
COMP_WORDS=(${words.map((word) => `'${word}'`).join(' ')}); COMP_CWORD=${words.length - 1}; _headgate; echo "\${COMPREPLY[*]}"`;
  const { stdout } = await run('bash', ['--norc', '-c', program], { env: { ...process.env, ...env } });
  return stdout
    .trim()
    .split(' ')
    .filter((word) => word !== '');
}

describe('headgate completion', () => {
  it('offers commands, options and their values in bash', async () => {
    const { stdout: script, code } = await runCli(['completion', 'bash']);
    expect(code).toBe(0);
    const first = await offers(script, 'headgate ');
    expect(first).toEqual(expect.arrayContaining(['engines', 'login', 'completion', 'backup', 'help']));
    expect(await offers(script, 'headgate eng')).toEqual(['engines']);
    expect(await offers(script, 'headgate engines re')).toEqual(['restart', 'reset', 'reload', 'requests']);
    expect(await offers(script, 'headgate engines logs --')).toEqual(
      expect.arrayContaining(['--tail', '--follow', '--json']),
    );
    expect(await offers(script, 'headgate completion ')).toEqual(['bash', 'zsh', 'fish']);
    expect(await offers(script, 'headgate engines logs x --tail ')).toEqual([]);
  });

  it('offers shell-safe names from the gateway, and none when it does not respond', async () => {
    const { env, close } = await offerNames(folders());
    const { stdout: script } = await runCli(['completion', 'bash']);
    expect(await offers(script, 'headgate clusters rm ', env)).toEqual(['research']);
    expect(await offers(script, 'headgate runs apply x --cluster ', env)).toEqual(['research']);
    expect(await offers(script, 'headgate clusters rm --y', env)).toEqual(['--yes']);
    close();
    expect(await offers(script, 'headgate clusters rm ', env)).toEqual([]);
  });
});
