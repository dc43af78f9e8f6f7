import { execFile } from 'node:child_process';
import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, it } from 'vitest';
import { runCli, useFolders } from './run-cli.ts';

const run = promisify(execFile);
const folders = useFolders();

/** What bash offers for a line, with its last word typed this far. */
async function offers(script: string, line: string): Promise<string[]> {
  const words = line.split(' ');
  const program = `${script}
COMP_WORDS=(${words.map((word) => `'${word}'`).join(' ')}); COMP_CWORD=${words.length - 1}; _headgate; echo "\${COMPREPLY[*]}"`;
  const { stdout } = await run('bash', ['--norc', '-c', program]);
  return stdout
    .trim()
    .split(' ')
    .filter((word) => word !== '');
}

describe('headgate completion', () => {
  it('offers in bash the commands that there are, their options and what these may be', async () => {
    const { stdout: script, code } = await runCli(['completion', 'bash']);
    expect(code).toBe(0);
    const first = await offers(script, 'headgate ');
    expect(first).toEqual(expect.arrayContaining(['engines', 'login', 'completion', 'backup', 'help']));
    expect(await offers(script, 'headgate eng')).toEqual(['engines']);
    expect(await offers(script, 'headgate engines re')).toEqual(['restart', 'reset', 'reload']);
    expect(await offers(script, 'headgate engines logs --')).toEqual(
      expect.arrayContaining(['--tail', '--follow', '--json']),
    );
    expect(await offers(script, 'headgate completion ')).toEqual(['bash', 'zsh', 'fish']);
    expect(await offers(script, 'headgate engines logs x --tail ')).toEqual([]);
  });

  it.each([
    ['zsh', '/usr/bin/zsh'],
    ['fish', '/usr/bin/fish'],
  ])('is a script that %s can read', async (shell, program) => {
    const { stdout: script } = await runCli(['completion', shell]);
    expect(script).toContain('engines');
    if (!existsSync(program)) return;
    const file = join(folders(), 'script');
    writeFileSync(file, script);
    expect(await run(program, ['-n', file])).toMatchObject({ stderr: '' });
    if (shell !== 'fish') return;
    const asked = await run(program, ['-c', `source ${file}; complete -C 'headgate engines re'`]);
    expect(asked.stdout).toMatch(/^restart\t/m);
    const flags = await run(program, ['-c', `source ${file}; complete -C 'headgate engines logs --ta'`]);
    expect(flags.stdout).toMatch(/^--tail/m);
  });
});
