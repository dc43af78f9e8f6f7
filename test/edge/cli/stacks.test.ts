import { execFileSync } from 'node:child_process';
import { mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { packOf } from '#test/stacks/raw-zip.ts';
import { useApi } from '#test/api/test-api.ts';
import { runCli, useFolders } from '#test/cli/run-cli.ts';

const api = useApi();
const folders = useFolders();
const env = () => ({ HEADGATE_URL: api().url, HEADGATE_API_KEY: api().admin });

describe('headgate stacks', () => {
  it('names a missing folder, a rejected package and an unknown stack', async () => {
    expect(await runCli(['stacks', 'push', '/nowhere'], { env: env() })).toMatchObject({
      code: 2,
      stderr: 'headgate: there is no /nowhere\n',
    });
    const folder = folders();
    writeFileSync(join(folder, 'override.tf'), '');
    writeFileSync(join(folder, 'stack.yaml'), 'icon: http://x\n');
    const refused = await runCli(['stacks', 'push', folder], { env: env() });
    expect([refused.code, refused.stdout]).toEqual([1, '']);
    expect(refused.stderr).toMatch(/override\.tf: is an override file.*icon: must be|icon: must be.*override\.tf: is/);
    symlinkSync('/etc/passwd', join(folder, 'link'));
    expect((await runCli(['stacks', 'push', folder], { env: env() })).stderr).toContain(
      'link is neither a file nor a folder',
    );
    expect(await runCli(['stacks', 'show', 'nothing'], { env: env() })).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('There is no such stack; "headgate stacks ls" lists the stacks\n  request '),
    });
  });

  it('pushes a folder and a zip, lists, shows, downloads and deletes', async () => {
    const folder = join(folders(), 'my-queue');
    mkdirSync(join(folder, '.terraform'), { recursive: true });
    writeFileSync(join(folder, 'main.tf'), 'variable "size" {\n  type = number\n}\n');
    writeFileSync(join(folder, '.terraform', 'x'), 'x');
    const pushed = await runCli(['stacks', 'push', folder, '--category', 'scheduler'], { env: env() });
    expect(pushed).toMatchObject({ code: 0, stderr: '', stdout: 'my-queue: version 1; visible to everybody\n' });
    expect((await runCli(['stacks', 'push', folder], { env: env() })).stdout).toContain('version 1;');
    const zip = packOf({ 'terraform.tfstate': '{}' });
    const file = join(folders(), 'other.zip');
    writeFileSync(file, zip);
    const other = await runCli(['stacks', 'push', file, '--name', 'other-one', '--title', 'Other'], { env: env() });
    expect(other.stdout).toBe('other-one: version 1; visible to everybody\n');
    expect(other.stderr).toContain('terraform.tfstate');

    const all = await runCli(['stacks', 'ls'], { env: env() });
    expect(all.stdout).toMatch(
      /^STACK +VERSION +VISIBLE TO +CATEGORY +TITLE\nk3s [^\n]+\nmonitoring [^\n]+\nmy-queue +1 +everybody +Scheduler +my-queue\n/,
    );
    expect((await runCli(['stacks', 'ls', '--search', 'OTHER', '--json'], { env: env() })).stdout).not.toContain(
      'my-queue',
    );
    expect((await runCli(['stacks', 'show', 'my-queue'], { env: env() })).stdout).toContain('type: number');

    const target = join(folders(), 'copy.zip');
    const download = () => runCli(['stacks', 'download', 'other-one', '--output', target], { env: env() });
    expect((await download()).stdout).toBe(`${target}: ${zip.length} bytes\n`);
    expect(readFileSync(target).equals(zip)).toBe(true);
    expect(await download()).toMatchObject({ code: 1, stderr: `headgate: ${target} already exists\n` });

    const remove = (...more: string[]) => runCli(['stacks', 'rm', 'my-queue', ...more], { env: env() });
    expect(await remove()).toMatchObject({
      code: 2,
      stderr: expect.stringContaining(
        'Delete the stack "my-queue" (version 1, visible to everybody)? All its versions are deleted.',
      ),
    });
    expect((await remove('--yes')).stdout).toBe('my-queue: deleted\n');
    expect((await remove('--yes')).code).toBe(1);
  });
});

describe('headgate stacks versions, diff and revert', () => {
  const run = (...args: string[]) => runCli(['stacks', ...args], { env: env() });
  const push = async (text: string): Promise<void> => {
    const folder = join(folders(), 'history');
    mkdirSync(folder);
    writeFileSync(join(folder, 'main.tf'), text);
    await run('push', folder);
  };

  it('lists, compares and downloads versions, and goes back to one', async () => {
    await push('variable "size" {\n  default = 1\n}\n');
    await push('variable "size" {\n  default = 2\n}\n');
    expect((await run('versions', 'history')).stdout).toMatch(
      /^VERSION +UPLOADED \(UTC\) +BY +FILES +BYTES +SHA-256 *\n2 +\d{4}-[^\n]+ newest\n1 +\d{4}-[^\n]+\n$/,
    );
    const { stdout } = await run('diff', 'history');
    expect(stdout).toMatch(
      /^# version 1 to 2\n# input size: changed \(number, default 1 -> number, default 2\)\ndiff --git /,
    );
    const before = join(folders(), 'before');
    mkdirSync(before);
    writeFileSync(join(before, 'main.tf'), 'variable "size" {\n  default = 1\n}\n');
    execFileSync('git', ['apply', '-'], { cwd: before, input: stdout });
    expect(readFileSync(join(before, 'main.tf'), 'utf8')).toContain('default = 2');
    expect((await run('diff', 'history', '--from', '2', '--to', '2')).stdout).toBe(
      '# version 2 to 2\n# no differences\n',
    );
    expect((await run('revert', 'history')).stdout).toBe('history: reverted; version 3\n');
    expect((await run('revert', 'history', '--to', '1')).stdout).toBe('history: unchanged, version 3\n');
    expect((await run('diff', 'history', '--from', '1')).stdout).toBe('# version 1 to 3\n# no differences\n');
    const target = join(folders(), 'second.zip');
    await run('download', 'history', '--stack-version', '2', '--output', target);
    const sizes = JSON.parse((await run('versions', 'history', '--json')).stdout).data.map(
      ({ size }: { size: number }) => size,
    );
    expect(readFileSync(target).length).toBe(sizes[1]);
    expect(JSON.parse((await run('diff', 'history', '--from', '2', '--json')).stdout)).toMatchObject({
      from: 2,
      to: 3,
    });
    expect(await run('revert', 'history', '--to', 'x')).toMatchObject({ code: 2 });
    expect(await run('diff', 'history', '--to', '9')).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('has no version 9'),
    });
  });

  it('prints a patch that git applies to files with any line ends and control characters', async () => {
    const [one, two] = ['# one\r\n# \u001b[2Jtwo\r\r\f\n', '# 1\r\n# \u001b[2Jtwo\r\r\f\n'];
    for (const text of [one, two]) {
      const folder = join(folders(), 'windows');
      mkdirSync(folder);
      writeFileSync(join(folder, 'main.tf'), '');
      writeFileSync(join(folder, 'notes.txt'), text);
      await run('push', folder);
    }
    const before = folders();
    writeFileSync(join(before, 'notes.txt'), one);
    execFileSync('git', ['apply', '-'], { cwd: before, input: (await run('diff', 'windows')).stdout });
    expect(readFileSync(join(before, 'notes.txt'), 'utf8')).toBe(two);
  });

  it('prints each line of a type as a comment, so that git applies no patch in it', async () => {
    const patch = 'diff --git a/evil b/evil\nnew file mode 100644\n--- /dev/null\n+++ b/evil\n@@ -0,0 +1 @@\n+evil';
    const texts = ['variable "a" {}\n', `variable "a" {\n  type = object({\n/*\n${patch}\n*/\n  })\n}\n`];
    for (const text of texts) {
      const folder = join(folders(), 'typed');
      mkdirSync(folder);
      writeFileSync(join(folder, 'main.tf'), text);
      await run('push', folder);
    }
    const before = folders();
    writeFileSync(join(before, 'main.tf'), texts[0] ?? '');
    execFileSync('git', ['apply', '-'], { cwd: before, input: (await run('diff', 'typed')).stdout });
    expect(readdirSync(before)).toEqual(['main.tf']);
    expect(readFileSync(join(before, 'main.tf'), 'utf8')).toBe(texts[1]);
  });
});
