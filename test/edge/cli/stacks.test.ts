import { mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
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
      /^STACK +VERSION +VISIBLE TO +CATEGORY +TITLE\nmonitoring [^\n]+\nmy-queue +1 +everybody +Scheduler +my-queue\n/,
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
