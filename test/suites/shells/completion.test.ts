import { execFile } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, it } from 'vitest';
import { offerNames } from '#test/cli/offered-names.ts';
import { runCli, useFolders } from '#test/cli/run-cli.ts';

const run = promisify(execFile);
const folders = useFolders();

/** A file with what `headgate completion` prints for a shell. */
async function scriptFor(shell: string): Promise<string> {
  const file = join(folders(), 'script');
  writeFileSync(file, (await runCli(['completion', shell])).stdout);
  return file;
}

describe('headgate completion', () => {
  it('offers shell-safe names in zsh', async () => {
    const { env, close } = await offerNames(folders());
    const script = await scriptFor('zsh');
    // The names as zsh has them, without its line editor.
    const stand = 'compdef() { :; }; compadd() { print -l -- $found; }';
    const program = `${stand}; source ${script}\n_headgate_names clusters`;
    const { stdout } = await run('zsh', ['-f', '-c', program], { env: { ...process.env, ...env } });
    close();
    expect(stdout).toBe('research\n');
  });

  it('offers shell-safe names in fish', async () => {
    const { env, close } = await offerNames(folders());
    const line = ['-c', `source ${await scriptFor('fish')}; complete -C 'headgate runs apply x --cluster '`];
    const { stdout } = await run('fish', line, { env: { ...process.env, ...env } });
    close();
    expect(stdout).toBe('research\tby name or id\n');
  });

  it.each(['zsh', 'fish'])('prints a script that %s can read', async (shell) => {
    expect(await run(shell, ['-n', await scriptFor(shell)])).toMatchObject({ stderr: '' });
  });

  it('offers commands and their options in fish', async () => {
    const script = await scriptFor('fish');
    const asked = await run('fish', ['-c', `source ${script}; complete -C 'headgate engines re'`]);
    expect(asked.stdout).toMatch(/^restart\t/m);
    const flags = await run('fish', ['-c', `source ${script}; complete -C 'headgate engines logs --ta'`]);
    expect(flags.stdout).toMatch(/^--tail/m);
  });
});
