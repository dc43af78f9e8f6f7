import { createServer, type Server } from 'node:http';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Command, commands } from '#edge/cli/cli.ts';
import { briefly } from '#edge/cli/shell/help.ts';
import { machineCommands } from '#programs/machine-commands.ts';
import { useApi } from '#test/api/test-api.ts';
import { say } from '#test/cli/in-process.ts';
import { runCli, useFolders } from '#test/cli/run-cli.ts';

/** Rules for every command that there is, also for one that is added tomorrow. */

const api = useApi();
const folders = useFolders();
const place = () => ({ url: api().url, key: api().admin });

/** As many words as it takes, that name nothing. */
const words = ({ words: { min }, choices }: Command): readonly string[] =>
  Array.from({ length: min }, () => choices?.[0] ?? 'nothing-of-this-name');

/** They need a standard input that ends. */
const readsInput = ['login', 'chat'];

/** One document, or a line for each. */
function readJson(text: string): readonly unknown[] {
  try {
    return [JSON.parse(text)];
  } catch {
    return text
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line) as unknown);
  }
}

let broken: Server;
let brokenUrl = '';
beforeAll(async () => {
  broken = createServer((request, response) => {
    request.resume();
    response.writeHead(503, { 'content-type': 'application/json', 'x-request-id': 'request-1' });
    response.end(JSON.stringify({ error: { code: 'overloaded', message: 'Too many requests are in flight.' } }));
  }).listen(0, '127.0.0.1');
  await new Promise((resolve) => broken.once('listening', resolve));
  const address = broken.address();
  brokenUrl = `http://127.0.0.1:${typeof address === 'object' ? (address?.port ?? 0) : 0}`;
});
afterAll(() => void broken.close());

describe('every headgate command', () => {
  it.each([...commands, ...machineCommands])('has a description of itself and its options: $name', (command) => {
    expect(briefly(command)).toMatch(/^[A-Z][a-z]+ /);
    for (const [name, { about }] of Object.entries(command.options)) expect(about, `--${name}`).toMatch(/\S/);
  });

  it.each(commands)('prints one JSON document for an error of the gateway with --json: $name', async (command) => {
    const args = [...command.name.split(' '), ...words(command), '--json'];
    const env = { HEADGATE_URL: brokenUrl, HEADGATE_API_KEY: 'k' };
    const { code, stdout, stderr } = readsInput.includes(command.name)
      ? await runCli(args, { env, input: '' })
      : await say(args, { url: brokenUrl, key: 'k' });
    const told = readJson(stdout);
    expect(told).toHaveLength(1);
    if (code === 0) return;
    expect(told[0]).toMatchObject({
      error: { message: expect.stringMatching(/\S/), code: expect.stringMatching(/\S/) },
    });
    expect(stderr).toMatch(/^headgate: \S/);
  });

  it("prints the gateway's error with the request id, and typing mistakes, as JSON", async () => {
    const refused = await say(['runs', 'ls', '--json'], { url: brokenUrl, key: 'k' });
    expect(JSON.parse(refused.stdout)).toEqual({
      error: { message: 'Too many requests are in flight.', code: 'overloaded', request_id: 'request-1' },
    });
    expect(refused).toMatchObject({
      code: 1,
      stderr: 'headgate: Too many requests are in flight.\n  request request-1\n',
    });
    for (const args of [
      ['nonsense', '--json'],
      ['--json', 'runs'],
      ['keys', 'ls', '--colour', '--json'],
    ]) {
      const wrong = await say(args, place());
      expect([wrong.code, JSON.parse(wrong.stdout).error.code], args.join(' ')).toEqual([2, 'usage']);
    }
    const nowhere = await say(['runs', 'ls', '--json'], { url: 'http://127.0.0.1:1', key: 'k' });
    expect(JSON.parse(nowhere.stdout)).toMatchObject({ error: { code: 'unreachable', request_id: null } });
  });

  it.each(machineCommands)("prints one JSON document with --json on the gateway's machine: $name", async (command) => {
    const env = { HEADGATE_DATA_DIR: folders(), HEADGATE_ENGINES_DIR: folders(), PORT: '20005' };
    const { stdout } = await runCli([...command.name.split(' '), ...words(command), '--json'], { env });
    expect(readJson(stdout)).toHaveLength(1);
  });

  it('prints lists as JSON with --json', async () => {
    const lists = commands.filter(({ name }) =>
      / ls$|^(models|usage|usage requests|wallet|wallet ledger|audit|costs)$/.test(name),
    );
    expect(lists.length).toBeGreaterThan(12);
    for (const { name } of lists) {
      // Models, engines, hosts and reconciliation are of a whole gateway.
      if (/^(models|engines|hosts)/.test(name)) continue;
      const { code, stdout, stderr } = await say([...name.split(' '), '--json'], place());
      expect({ name, code, stderr }).toEqual({ name, code: 0, stderr: '' });
      expect(readJson(stdout), name).toHaveLength(1);
    }
  });

  it('is in the help of its group, in every way to request the help', async () => {
    const groups = [...new Set(commands.flatMap(({ name }) => (name.includes(' ') ? [name.split(' ')[0] ?? ''] : [])))];
    const bare = groups.filter((group) => !commands.some(({ name }) => name === group));
    expect(bare.length).toBeGreaterThan(7);
    for (const group of bare) {
      const help = await say(['help', group], place());
      expect(help).toMatchObject({ code: 0, stderr: '' });
      for (const words of [
        [group, '--help'],
        [group, '-h'],
        ['--help', group],
      ])
        expect(await say(words, place()), words.join(' ')).toEqual(help);
      const { data } = JSON.parse((await say([group, '--help', '--json'], place())).stdout);
      const names = commands.filter(({ name }) => name.startsWith(`${group} `)).map(({ name }) => name);
      expect(data.map(({ name }: { name: string }) => name)).toEqual(names);
    }
  });

  it('is in the help of a command whose name is its beginning', async () => {
    const further = commands.filter(({ name: whole }) => commands.some(({ name }) => whole.startsWith(`${name} `)));
    expect(further.map(({ name }) => name)).toContain('wallet ledger');
    for (const { name } of further) {
      const [first = ''] = name.split(' ');
      const { code, stdout } = await say([first, '--help'], place());
      expect([code, stdout.startsWith(`headgate ${first} `)]).toEqual([0, true]);
      expect(stdout).toContain(`\n  ${name} `);
      const { data } = JSON.parse((await say([first, '--help', '--json'], place())).stdout);
      expect(data.map((one: { name: string }) => one.name)).toContain(name);
    }
  });

  it('is in the help, and the help and the version are JSON with --json', async () => {
    const text = (await say(['help'], place())).stdout;
    for (const { name } of commands) expect(text).toContain(`  ${name} `);
    const { data } = JSON.parse((await say(['help', '--json'], place())).stdout);
    expect(data.map(({ name }: { name: string }) => name)).toEqual(commands.map(({ name }) => name));
    expect(JSON.parse((await say(['--version', '--json'], place())).stdout)).toMatchObject({ object: 'version' });
    expect(JSON.parse((await say(['runs', 'open', '--help', '--json'], place())).stdout).data).toHaveLength(1);
  });
});
