import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, it } from 'vitest';
import type { Body } from '#test/inference/inference-gateway.ts';
import { clientOf, engineFile, repository, useProcesses } from '#test/programs/gateway-process.ts';

const processes = useProcesses();
const run = promisify(execFile);
/** Blocks of shell between two headings. */
function blocksOf(from: string, to: string, page = 'README.md'): string[] {
  const text = `\n${readFileSync(join(repository, page), 'utf8')}`;
  const start = text.indexOf(`\n${from}\n`);
  const end = text.indexOf(`\n${to}\n`, start);
  if (start === -1 || end === -1) throw new Error(`${page} has no "${from}" with "${to}" after it.`);
  const section = text.slice(start, end);
  return [...section.matchAll(/^```sh\n([^]*?)\n```$/gm)].map(([, block = '']) => block);
}

const placeOfReadme = 'http://127.0.0.1:8080';

describe('the README', () => {
  it('shows one sentence, one command, the key and one request before everything else', () => {
    const [start, set, ask, ...others] = blocksOf('# Headgate', '## First steps');
    expect(others).toEqual([]);
    expect(start).toBe('npm ci && npm start');
    expect(set).toBe('export HEADGATE_API_KEY=sk-hg-...');
    expect(ask).toMatch(/^curl http/);
  });

  it('has first steps of one line each that work when pasted for a new gateway', async () => {
    const id = 'standin-chat';
    const gateway = processes.run({ home: processes.home({ [id]: engineFile(id) }), databaseUrl: null });
    const url = await gateway.url();
    const [, key = ''] = await gateway.printed(/^ {2}(sk-hg-\S+)$/m);
    const paste = async (line: string): Promise<string> => {
      const env = { ...process.env, HEADGATE_API_KEY: key };
      expect(line).toContain(placeOfReadme);
      return (await run('bash', ['-c', line.replace(placeOfReadme, url)], { env })).stdout;
    };
    const [, , ask = ''] = blocksOf('# Headgate', '## First steps');
    expect(JSON.parse(await paste(ask))).toMatchObject({ object: 'chat.completion', model: id });

    const [second = '', topUp = '', bill = '', ...others] = blocksOf('## First steps', '## Features');
    expect(others).toEqual([]);
    for (const line of [second, topUp, bill]) expect(line).not.toContain('\n');
    const made: Body = JSON.parse(await paste(second));
    expect(made).toMatchObject({ object: 'api_key', scope: 'inference', status: 'active' });
    expect((await clientOf(url, made.secret).chat({ model: id })).status).toBe(200);
    expect(JSON.parse(await paste(topUp))).toMatchObject({ type: 'credit', amount: '25' });
    // Sent again it is booked once.
    expect(JSON.parse(await paste(topUp))).toMatchObject({ type: 'credit', amount: '25' });
    const lines = (await paste(bill)).split('\r\n');
    expect(lines).toContainEqual(expect.stringMatching(/^credits,.*,35,$/));
    expect(lines.filter((line) => line.startsWith('usage,'))).toHaveLength(2);
  });

  it('creates a second organization with its own key and credit, and suspends it, line by line', async () => {
    const id = 'standin-chat';
    const gateway = processes.run({ home: processes.home({ [id]: engineFile(id) }), databaseUrl: null });
    const url = await gateway.url();
    const [, key = ''] = await gateway.printed(/^ {2}(sk-hg-\S+)$/m);
    const paste = async (line: string, organization = ''): Promise<Body> => {
      const env = { ...process.env, HEADGATE_API_KEY: key, ORGANIZATION: organization };
      expect(line).toContain(placeOfReadme);
      return JSON.parse((await run('bash', ['-c', line.replace(placeOfReadme, url)], { env })).stdout);
    };
    const [open = '', set, makeKey = '', credit = '', suspend = '', ...others] = blocksOf(
      '## A second organization',
      '## Organizations',
      'src/edge/api/README.md',
    );
    expect(others).toEqual([]);
    expect(set).toBe('export ORGANIZATION=org_...');
    for (const line of [open, makeKey, credit, suspend]) expect(line).not.toContain('\n');
    const { id: organization, management_key: own } = await paste(open);
    const { secret } = await paste(makeKey, organization);
    expect(await paste(credit, organization)).toMatchObject({ type: 'credit', amount: '10', balance_after: '10' });
    const wallet = async (): Promise<Body> => clientOf(url, own).get('/v1/wallet');
    expect(await wallet()).toMatchObject({ balance: '10' });
    expect((await clientOf(url, secret).chat({ model: id })).status).toBe(200);
    expect(await paste(suspend, organization)).toMatchObject({ id: organization, status: 'suspended' });
    expect((await clientOf(url, secret).chat({ model: id })).status).toBe(403);
  });

  it('uses settings of the command that a gateway ignores at its start', async () => {
    const env = { HEADGATE_API_KEY: 'not a key', HEADGATE_URL: 'nowhere' };
    const gateway = processes.run({ home: processes.home(), databaseUrl: await processes.database(), env });
    await gateway.url();
    gateway.signal('SIGTERM');
    expect(await gateway.exited).toEqual({ code: 0, signal: null });
  });

  it('has two programs that print --version; start.js exits with 2 for an unknown argument', async () => {
    const { version }: { version: string } = JSON.parse(readFileSync(join(repository, 'package.json'), 'utf8'));
    const of = (...words: string[]) => run(process.execPath, words, { cwd: repository });
    for (const program of ['src/programs/headgate.js', 'src/programs/start.js'])
      expect(await of(program, '--version')).toEqual({ stdout: `headgate ${version}\n`, stderr: '' });
    await expect(of('src/programs/start.js', '--port', '9000')).rejects.toMatchObject({
      code: 2,
      stdout: '',
      stderr: expect.stringMatching(
        /^unknown argument --port\. .*PORT=8081 npm start; compose\/settings\.md lists them/,
      ),
    });
  });
});
