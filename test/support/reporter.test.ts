import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { afterAll, expect, it } from 'vitest';

const vitest = fileURLToPath(new URL('../../node_modules/vitest/vitest.mjs', import.meta.url));
const reporter = new URL('reporter.ts', import.meta.url).href;
const folders: string[] = [];
afterAll(() => {
  for (const folder of folders) rmSync(folder, { recursive: true, force: true });
});

interface Ended {
  readonly status: number | null;
  readonly output: string;
  /** Content of the file that TEST_FAILED_FILE names; null where it was not written. */
  readonly failed: string | null;
}

/** Runs one test file with this reporter, as `.ci/run` does. */
async function runTests(test: string, teardown: string): Promise<Ended> {
  const root = mkdtempSync(join(tmpdir(), 'hg-reporter-'));
  folders.push(root);
  const config = `
    import { createReporter } from ${JSON.stringify(reporter)};
    const reporters = [createReporter({ run: [], notes: [], problems: [] })];
    export default { test: { globals: true, reporters, globalSetup: ['setup.mjs'] } };`;
  writeFileSync(join(root, 'config.mjs'), config);
  writeFileSync(join(root, 'setup.mjs'), `export const setup = () => () => { ${teardown} };`);
  writeFileSync(join(root, 'one.test.mjs'), `it('one', () => { ${test} });`);
  const file = join(root, 'failed');
  const args = [vitest, 'run', '--root', root, '--config', join(root, 'config.mjs'), '--configLoader', 'native'];
  const own = Object.entries(process.env).filter(([name]) => !/^(VITEST|TEST)/.test(name));
  const env = { ...Object.fromEntries(own), TEST_FAILED_FILE: file };
  const child = spawn(process.execPath, args, { env, stdio: ['ignore', 'pipe', 'pipe'] });
  const [stdout, stderr, [status]] = await Promise.all([text(child.stdout), text(child.stderr), once(child, 'exit')]);
  const failed = existsSync(file) ? readFileSync(file, 'utf8') : null;
  return { status, output: stdout + stderr, failed };
}

it('ends a run with status 3 and the names of failed tests when only tests failed', async () => {
  const { status, output, failed } = await runTests("throw new Error('wrong')", '');
  expect([status, failed], output).toEqual([3, 'one.test.mjs\tone\n']);
});

it('ends a run with status 1 when the global teardown failed after a failed test', async () => {
  const { status, output } = await runTests("throw new Error('wrong')", "throw new Error('does not end')");
  expect(status, output).toBe(1);
  expect(output).toContain('does not end');
});

it('ends a run with status 1 and no test names when only the global teardown failed', async () => {
  const { status, output, failed } = await runTests('', "throw new Error('does not end')");
  expect([status, failed], output).toEqual([1, null]);
});
