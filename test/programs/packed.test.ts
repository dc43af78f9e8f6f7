import { execFile } from 'node:child_process';
import { cpSync, mkdirSync, readdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, it } from 'vitest';
import { useFolders } from '#test/cli/run-cli.ts';
import { chaptersOf, listPages } from '#test/tidy/chapters.ts';
import { repository, useProcesses } from '#test/programs/gateway-process.ts';

const run = promisify(execFile);
const folders = useFolders();
const processes = useProcesses();

/** How npm is set up on this machine, and the way to its registry. */
const npmSettings = Object.fromEntries(
  Object.entries(process.env).flatMap(([name, value = '']) =>
    /^npm_config_|_proxy$|^NODE_EXTRA_CA_CERTS$|^SSL_CERT_/i.test(name) ? [[name, value]] : [],
  ),
);

describe('the packed package', () => {
  it('installs with npm i -g, and runs both the command and a gateway', async () => {
    const checkout = folders();
    // Not here: for a moment JavaScript lies beside every file of the checkout.
    for (const name of ['src', 'engines', 'drizzle', 'package.json', 'README.md', '.npmrc']) {
      cpSync(join(repository, name), join(checkout, name), { recursive: true });
    }
    // Only written files of compose/: secrets of a checkout stay where they are.
    const chapters = chaptersOf(listPages(repository)).filter((path) => !/^(?:test|\.github)\//.test(path));
    for (const path of chapters) cpSync(join(repository, path), join(checkout, path));
    const prefix = folders();
    const path = `${dirname(process.execPath)}:/usr/local/bin:/usr/bin:/bin`;
    const env = { HOME: prefix, PATH: path, ...npmSettings };
    const { stdout } = await run('npm', ['pack', '--json', '--pack-destination', prefix], { cwd: checkout, env });
    const [packed] = JSON.parse(stdout.slice(stdout.indexOf('['))) as { filename: string; files: { path: string }[] }[];
    const paths = packed?.files.map((file) => file.path) ?? [];
    expect(paths).toContain('src/core/stacks/builtin/scheduler/main.tf');
    expect(paths.filter((name) => name.endsWith('.ts'))).toEqual([]);
    // Messages point to them.
    expect(paths).toEqual(expect.arrayContaining(['README.md', ...chapters]));
    // Nothing of it stays in the checkout.
    expect(readdirSync(join(checkout, 'src/base')).filter((name) => name.endsWith('.js'))).toEqual([]);

    await run('npm', ['install', '--global', '--prefix', prefix, join(prefix, packed?.filename ?? '')], { env });
    const command = join(prefix, 'bin', 'headgate');
    const version = await run(command, ['--version'], { env });
    expect(version.stdout).toMatch(/^headgate \d+\.\d+\.\d+\n$/);

    const program = join(prefix, 'lib/node_modules/headgate/src/programs/start.js');
    mkdirSync(join(prefix, 'work'));
    const gateway = processes.run({
      home: { ...processes.home(), enginesDir: '' },
      databaseUrl: await processes.database(),
      command: [process.execPath, program],
      cwd: join(prefix, 'work'),
    });
    const url = await gateway.url();
    const [, key = ''] = await gateway.printed(/^ {2}(sk-hg-\S+)$/m);
    const asking = { env: { ...env, HEADGATE_URL: url, HEADGATE_API_KEY: key } };
    expect((await run(command, ['models'], asking)).stdout).toMatch(/^standin-chat +chat/m);
    const answer = run(command, ['chat', '-m', 'standin-chat', 'Hello!'], asking);
    answer.child.stdin?.end();
    expect((await answer).stdout).toContain('This text comes from a stand-in engine');
    // The stacks that come with the product are parsed by a worker, a file of its own.
    expect((await run(command, ['stacks', 'ls'], asking)).stdout).toMatch(/^scheduler +1 /m);
    // Nothing that a command needs is left out of the package.
    const answers: readonly [words: string, answer: RegExp][] = [
      ['runs ls', /^no runs; create one with "headgate stacks apply"\n$/],
      ['clusters ls', /^no clusters; create one with "headgate clusters create NAME --org ORG"\n$/],
      ['costs', /^[\d: -]+ to [\d: -]+ \(UTC\), as of [\d: -]+\n(?:.*\n)*total: .* GPU-hours, /],
      ['users ls', /^USER +EMAIL .*\nuser_[0-9a-f]{32} +admin@localhost +admin +owner of org_[0-9a-f]{32} +Admin\n$/],
    ];
    for (const [words, answer] of answers) {
      const { stdout: said, stderr } = await run(command, words.split(' '), asking);
      expect([words, stderr]).toEqual([words, '']);
      expect(said).toMatch(answer);
    }
  });
});
