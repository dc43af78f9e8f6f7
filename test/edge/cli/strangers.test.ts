import { spawnSync } from 'node:child_process';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, describe, expect, it } from 'vitest';
import { parseClientConfig } from '#base/config/read-config.ts';
import { createApiClient } from '#edge/cli/shell/api-client.ts';
import { repository, runCli } from '#test/cli/run-cli.ts';
import { useTerminals } from './terminal.ts';

const terminals = useTerminals();
const undo: (() => void)[] = [];
afterEach(() => {
  for (const step of undo.splice(0)) step();
});

/** Somebody who is no gateway, or one that is cut off. */
async function serve(answer: (request: IncomingMessage, response: ServerResponse) => void): Promise<string> {
  const server = createServer(answer).listen(0, '127.0.0.1');
  await new Promise((resolve) => server.once('listening', resolve));
  undo.push(() => {
    server.closeAllConnections();
    server.close();
  });
  const address = server.address();
  return `http://127.0.0.1:${typeof address === 'object' ? (address?.port ?? 0) : 0}`;
}

const run = (url: string, args: readonly string[]) =>
  runCli(args, { env: { HEADGATE_URL: url, HEADGATE_API_KEY: 'sk-hg-secret' } });
const chat = ['chat', '-m', 'm', 'what nobody else may read'];

const events =
  (...lines: readonly string[]) =>
  (_: IncomingMessage, response: ServerResponse) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.end(lines.map((line) => `data: ${line}\n\n`).join(''));
  };
const begun = JSON.stringify({ model: 'm', choices: [{ index: 0, delta: { content: 'Half of it' } }] });

describe('headgate at a redirect to another host', () => {
  it('sends neither key nor body there, and says where the redirect leads', async () => {
    const seen: string[] = [];
    const other = await serve((request, response) => {
      void text(request).then((body) => seen.push(`${request.headers.authorization ?? ''} ${body}`));
      response.end('{"data":[]}');
    });
    for (const status of [302, 307]) {
      const url = await serve((request, response) => {
        response.writeHead(status, { location: `${other}${request.url ?? ''}` }).end();
      });
      for (const args of [chat, ['models'], ['keys', 'create', 'x']]) {
        const { code, stdout, stderr } = await run(url, args);
        expect({ code, stdout }).toEqual({ code: 1, stdout: '' });
        expect(stderr).toContain(`${url} redirects to ${other}, and nothing was sent there`);
      }
    }
    expect(seen).toEqual([]);
  });
});

describe('headgate chat at a server that is not a gateway', () => {
  it.each([
    ['a page', (_: IncomingMessage, response: ServerResponse) => void response.end('<html>')],
    ['frames of another kind', events('{"a":1}', '[DONE]')],
    ['what is no JSON', events('nonsense')],
    ['choices that are none', events('{"model":"m","choices":7}')],
  ])('exits with 1 and a message: %s', async (_name, answer) => {
    const { code, stdout, stderr } = await run(await serve(answer), chat);
    expect({ code, stdout }).toEqual({ code: 1, stdout: '' });
    expect(stderr).toMatch(
      /^headgate: http:\S+ did not answer like a Headgate gateway; HEADGATE_URL sets the address\n/,
    );
  });

  it('exits with an error when the answer breaks off, by a cut connection or a clean end', async () => {
    const cut = await serve((_, response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream', 'x-request-id': 'r-1' });
      response.write(`data: ${begun}\n\n`, () => void sleep(200).then(() => response.destroy()));
    });
    expect((await run(cut, chat)).stderr).toContain('  request r-1\n');
    for (const url of [cut, await serve(events(begun))]) {
      const { code, stdout, stderr } = await run(url, chat);
      expect({ code, stdout }).toEqual({ code: 1, stdout: 'Half of it\n' });
      expect(stderr).toContain(`headgate: the answer of ${url} broke off; the output is incomplete\n`);
    }
  });
});

describe('headgate with an invalid response', () => {
  const attack = '\u001b]0;owned\u0007';
  const bucket = { object: 'list', data: [], from: 1e30, to: 1e30, group_by: [], as_of: 1e30 };
  it.each([
    [
      'moments that there are none',
      ['wallet', 'ledger'],
      {
        id: 'e',
        object: 'ledger_entry',
        type: 'credit',
        amount: '1',
        balance_after: '1',
        created_at: Number.MAX_SAFE_INTEGER,
        reference: 'r',
        note: null,
        request_id: null,
        requests: null,
      },
    ],
    ['choices of a stream that are nothing', chat, null],
  ])('fails with a readable error, as JSON too: %s', async (_name, args, entry) => {
    const url = await serve((request, response) => {
      if (request.method === 'POST') return events('{"model":"m","choices":[null]}', '[DONE]')(request, response);
      response.end(JSON.stringify({ ...bucket, data: [entry], next_cursor: null }));
    });
    const { code, stdout, stderr } = await run(url, args);
    expect([code, stdout]).toEqual([1, '']);
    expect(stderr).toMatch(/^headgate: unexpected error, in an answer or in the command itself: .+\n {4}at /);
    if (args !== chat) return;
    const json = await run(url, [...args, '--json']);
    expect(json.code).toBe(1);
    expect(JSON.parse(json.stdout)).toMatchObject({ error: { code: 'internal', request_id: null } });
  });

  it('removes terminal control characters from it', async () => {
    const window = {
      from: '2026-11-01T00:00:00Z',
      to: '2026-12-01T00:00:00Z',
      as_of: '2026-11-02T00:00:00Z',
      tz: attack,
    };
    const hours = { node_hours: 0, gpu_hours: 0, unrated_hours: 0, unrated_gpu_hours: 0 };
    const url = await serve((_, response) => {
      response.end(JSON.stringify({ window, totals: hours, grand_total: [], organizations: [], warnings: [] }));
    });
    const { code, stderr } = await run(url, ['costs', '--month', '2026-11']);
    expect(code).toBe(1);
    expect(stderr).toContain('unexpected error');
    // oxlint-disable-next-line no-control-regex
    expect(stderr).not.toMatch(/[\u001b\u0007]/);
  });
});

describe('headgate with a hostile server', () => {
  const attack = '\u001b]0;owned\u0007\u001b[2J\u001b[H\u009b2Jgone';

  it('removes terminal control characters from its error messages', async () => {
    const url = await serve((_, response) => {
      response.writeHead(404, { 'content-type': 'application/json', 'x-request-id': 'a\u009b2Jb' });
      response.end(JSON.stringify({ error: { message: `No ${attack}`, code: 'not_found' } }));
    });
    for (const args of [['keys', 'ls'], ['models'], chat, ['runs', 'show', 'x']]) {
      const { code, stderr } = await run(url, args);
      expect(code).toBe(1);
      expect(stderr).toContain('No ]0;owned[2J[H2Jgone');
      // oxlint-disable-next-line no-control-regex
      expect(stderr).not.toMatch(/[\u0000-\u0009\u000b-\u001f\u007f-\u009f]/);
    }
  });

  it('removes terminal control characters from its data', async () => {
    const made = { id: `key_1${attack}`, name: 'x', prefix: 'sk-hg-', last4: 'abcd', scope: `inference${attack}` };
    const limits = { requests_per_minute: null, max_concurrency: null, tokens_per_minute: null };
    const times = { created_at: 1, expires_at: null, last_used_at: null, revoked_at: null, rotated_at: null };
    const owner = { project_id: 'proj_1', user_id: 'user_1', service_account_id: null, held: false };
    const settings = {
      store_requests: false,
      cache_responses: false,
      unserved_tools: null,
      end_user_from_header: false,
      confined: null,
      models: null,
    };
    const others = { object: 'api_key', status: 'active', monthly_token_limit: null, former_secrets_end_at: null };
    const url = await serve((_, response) => {
      response.writeHead(201, { 'content-type': 'application/json' });
      const key = { ...made, ...limits, ...times, ...owner, ...settings, ...others };
      response.end(JSON.stringify({ ...key, secret: `sk-hg-1${attack}` }));
    });
    const terminal = await terminals().open({ HEADGATE_URL: url, HEADGATE_API_KEY: 'sk-hg-secret' });
    await terminal.type('headgate keys create x; echo done\n');
    const screen = await terminal.shows(/\ndone\n/);
    // Nothing has cleared it.
    expect(screen).toMatch(/^\$ headgate keys create x; echo done\n/);
    expect(screen).toContain('sk-hg-1]0;owned[2J[H2Jgone');
  });

  it('fails with a retryable error when a response never ends', async () => {
    const url = await serve((_, response) => {
      response.writeHead(200, { 'content-type': 'application/json' }).write('{');
    });
    const client = createApiClient(parseClientConfig({ HEADGATE_URL: url, HEADGATE_API_KEY: 'k' }));
    const asked = client.call('GET', '/v1/models', { answerTimeoutMs: 300 });
    await expect(asked).rejects.toMatchObject({
      message: expect.stringContaining(`${url} ended before the whole answer arrived`),
      isPassing: true,
    });
  });
});

describe('a streamed CLI response', () => {
  it('continues after a silence longer than the response timeout', async () => {
    const url = await serve((_, response) => {
      response.writeHead(200, { 'content-type': 'text/csv' }).write('a line\n');
      setTimeout(() => response.end('another\n'), 1500);
    });
    const client = createApiClient(parseClientConfig({ HEADGATE_URL: url, HEADGATE_API_KEY: 'k' }));
    const parts: string[] = [];
    for await (const part of client.text('/v1/billing/costs.csv', { answerTimeoutMs: 500 })) parts.push(part);
    expect(parts.join('')).toBe('a line\nanother\n');
  });
});

describe('headgate with a failing standard output', () => {
  it('exits with an error, except when the reader has closed the pipe', () => {
    const shell = (line: string) =>
      spawnSync('bash', ['--norc', '-c', `set -o pipefail; ${line}`], {
        cwd: repository,
        encoding: 'utf8',
        // On a socket bash would assume a remote shell, and read files of its own.
        stdio: ['ignore', 'pipe', 'pipe'],
        env: { PATH: process.env['PATH'] ?? '', HG: join(repository, 'src/programs/headgate.js') },
      });
    expect(shell('node "$HG" help > /dev/full')).toMatchObject({
      status: 1,
      stderr: 'headgate: the output cannot be written (ENOSPC)\n',
    });
    expect(shell('node "$HG" help | true')).toMatchObject({ status: 0, stderr: '' });
  });
});
