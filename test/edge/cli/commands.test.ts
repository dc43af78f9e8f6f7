import { mkdirSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { parseConfig } from '#base/config/read-config.ts';
import { repository, runCli, useFolders } from '#test/cli/run-cli.ts';

const folders = useFolders();

describe('an incorrect headgate command', () => {
  it.each([
    [['nonsense'], 'unknown command "nonsense"'],
    [['enginse', 'ls'], 'unknown command "enginse" (did you mean "headgate engines"?)'],
    [['engines', 'restrat', 'x'], 'has no subcommand "restrat" (did you mean "headgate engines restart"?)'],
    [['engines', 'logs', 'x', '--tial', '3'], 'Unknown option \'--tial\' (did you mean "--tail"?)'],
    [['completion', 'bsh'], '"bsh" must be one of bash, zsh, fish (did you mean "bash"?)'],
    [['engines', 'explode'], 'has no subcommand "explode"'],
    [['engines', 'start'], 'an argument is missing: headgate engines start ID'],
    [['engines', 'ls', 'x'], 'too many arguments'],
    [['engines', 'ls', '--colour'], "Unknown option '--colour'"],
    [['engines', 'logs', 'x', '--tail', 'all'], '--tail must be a number of lines'],
    [['engines', 'ls'], 'HEADGATE_API_KEY is not set'],
    [['engines', 'validate', '/nowhere'], 'there is no /nowhere'],
    [['import', 'ollama', 'x'], 'has no subcommand "ollama"; use one of llama-swap, litellm'],
  ])('prints one sentence and exits with 2: %j', async (args, sentence) => {
    const result = await runCli(args);
    expect(result).toMatchObject({ code: 2, stdout: '' });
    expect(result.stderr).toMatch(/^headgate: [^\n]+\n$/);
    expect(result.stderr).toContain(sentence);
  });

  it('shows the commands of a group when the subcommand is missing, and exits with 2', async () => {
    const group = await runCli(['engines']);
    expect(group).toMatchObject({ code: 2, stdout: '' });
    expect(group.stderr).toMatch(/^headgate \[--json\] \[--wide\] COMMAND\n/);
    expect(group.stderr).toContain('  engines stop ID ');
    expect(group.stderr).not.toContain('clusters ls');
    expect(group.stderr).toMatch(
      /\nheadgate: "headgate engines" needs a subcommand, one of ls, show, start, stop[^\n]*\n$/,
    );
    const json = await runCli(['engines', '--json']);
    expect(json).toMatchObject({ code: 2, stderr: expect.stringMatching(/^headgate: [^\n]+\n$/) });
    expect(JSON.parse(json.stdout)).toMatchObject({ error: { code: 'usage' } });
    // An option that is none of every command's says nothing of help.
    const wrong = await runCli(['engines', '--colour', '--help']);
    expect(wrong).toMatchObject({ code: 2, stdout: '', stderr: expect.stringMatching(/^headgate: [^\n]+\n$/) });
    expect(await runCli(['engines', 'explode', '--help'])).toMatchObject({ code: 2, stdout: '' });
  });

  it('names the invalid environment variable', async () => {
    const result = await runCli(['engines', 'ls'], { env: { HEADGATE_URL: 'localhost' } });
    expect(result).toMatchObject({ code: 2, stderr: expect.stringContaining('HEADGATE_URL: must be a URL such as') });
    // A gateway that is started from the same shell ignores them.
    expect(parseConfig({ HEADGATE_URL: 'localhost', HEADGATE_API_KEY: 'k' })).toMatchObject({ http: { port: 8080 } });
  });
});

describe('headgate without a gateway', () => {
  it('lists its commands, all or those of a group', async () => {
    const all = await runCli([]);
    expect(all).toMatchObject({ code: 0, stderr: '' });
    expect(all.stdout).toMatch(/^  engines logs +Print the last lines of an engine's output$/m);
    const group = await runCli(['help', 'import']);
    expect(group.stdout).toContain(
      'import litellm FILE [--out FOLDER] [--force] | --database URL [--org ID] [--dry-run]\n',
    );
    expect(group.stdout).not.toContain('engines ls');
    expect((await runCli(['engines', 'stop', '--help'])).stdout).toContain('headgate engines stop ID');
  });

  it('names the URL when it is unreachable or not a gateway', async () => {
    const env = { HEADGATE_API_KEY: 'k', HEADGATE_URL: 'http://127.0.0.1:1' };
    expect(await runCli(['engines', 'ls'], { env })).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('http://127.0.0.1:1 is unreachable (ECONNREFUSED): is the gateway running?'),
    });
    // An answer that says nothing of the ledger is no difference in it.
    expect(await runCli(['reconcile'], { env })).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('http://127.0.0.1:1 is unreachable'),
    });
    const other = createServer((_, response) => void response.end('<html>')).listen(0, '127.0.0.1');
    await new Promise((resolve) => other.once('listening', resolve));
    const address = other.address();
    const port = typeof address === 'object' ? (address?.port ?? 0) : 0;
    const result = await runCli(['engines', 'ls'], { env: { ...env, HEADGATE_URL: `http://127.0.0.1:${port}` } });
    other.close();
    expect(result).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('did not answer like a Headgate gateway'),
    });
  });
});

describe('headgate engines validate', () => {
  it('names file, line and field of a mistake, and exits with 1', async () => {
    const folder = join(folders(), 'engines');
    mkdirSync(folder);
    writeFileSync(join(folder, 'a.yaml'), 'version: 1\nid: a\nreplica: 3\n');
    writeFileSync(join(folder, 'hosts.yaml'), 'hosts: []\n');
    const result = await runCli(['engines', 'validate', folder]);
    expect(result).toMatchObject({ code: 1, stdout: '' });
    expect(result.stderr).toContain('engines/hosts.yaml:1: hosts: must not be empty');
    expect(result.stderr).toContain('engines/a.yaml:1: driver: this field is missing');
    const json = await runCli(['engines', 'validate', folder, '--json']);
    expect(json.code).toBe(1);
    expect(JSON.parse(json.stdout)).toMatchObject({
      valid: false,
      problems: expect.arrayContaining([
        { file: 'engines/a.yaml', line: 1, field: 'driver', message: 'this field is missing' },
      ]),
    });
  });

  it('accepts the shipped engines and every example, by folder, by files and from the environment', async () => {
    const shipped = await runCli(['engines', 'validate'], { env: { HEADGATE_ENGINES_DIR: `${repository}engines` } });
    expect(shipped).toMatchObject({
      code: 0,
      stderr: '',
      stdout: expect.stringMatching(/^\d+ engine files are valid/),
    });
    const examples = await runCli(['engines', 'validate', 'engines/examples', '--json']);
    expect(examples).toMatchObject({ code: 0, stderr: '' });
    const { engines } = JSON.parse(examples.stdout) as { engines: { id: string; file: string }[] };
    expect(engines.length).toBeGreaterThanOrEqual(9);
    const files = engines.map(({ file }) => `engines/${file}`);
    const result = await runCli(['engines', 'validate', ...files]);
    expect(result).toMatchObject({ code: 0, stdout: `${files.length} engine files are valid\n` });
  });

  it('rejects two files with the same model name, also when given one by one', async () => {
    const folder = folders();
    const text = (id: string) =>
      `version: 1\nid: ${id}\nname: Same\nhugging_face_id: a/${id}\ntask_type: chat\ncontext_length: 1\ndriver: external\nurl: http://a.example\n`;
    writeFileSync(join(folder, 'a.yaml'), text('a'));
    writeFileSync(join(folder, 'b.yaml'), text('b'));
    const result = await runCli(['engines', 'validate', join(folder, 'a.yaml'), join(folder, 'b.yaml')]);
    expect(result).toMatchObject({
      code: 1,
      stderr: `${folder}/b.yaml:3: name: "Same" is already the id, name, alias or repository of ${folder}/a.yaml: choose a different name for one of them\n`,
    });
  });
});
