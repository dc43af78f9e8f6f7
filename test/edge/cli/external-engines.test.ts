import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, describe, expect, it, onTestFinished } from 'vitest';
import { type Body, eventually, externalFile, useInference } from '#test/inference/inference-gateway.ts';
import { type CliResult, runCli } from '#test/cli/run-cli.ts';

/** An external server: it answers chats with `status`, and can become unreachable and come back at its address. */
class FarServer {
  status = 200;
  health = 200;
  port = 0;
  #server: Server | null = null;

  async open(): Promise<void> {
    if (this.#server !== null) return;
    const server = createServer((request, answer) => {
      if (request.method === 'GET') {
        answer.writeHead(this.health).end();
        return;
      }
      const choices = [{ index: 0, message: { role: 'assistant', content: 'far' }, finish_reason: 'stop' }];
      const usage = { prompt_tokens: 3, completion_tokens: 1, total_tokens: 4 };
      const body = this.status === 200 ? { id: 'x', model: 'theirs', choices, usage } : { detail: secretText };
      request.resume().on('end', () => answer.writeHead(this.status).end(JSON.stringify(body)));
    });
    await new Promise<void>((resolve) => server.listen(this.port, '127.0.0.1', resolve));
    this.port = (server.address() as AddressInfo).port;
    this.#server = server;
  }

  async close(): Promise<void> {
    const server = this.#server;
    if (server === null) return;
    this.#server = null;
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  }
}

const secretText = 'the far server says vllm-secret-name';
const server = new FarServer();
afterAll(() => server.close());

const bench = useInference(async () => {
  await server.open();
  return { engines: { far: externalFile('far', `http://127.0.0.1:${server.port}/base`) } };
});

function headgate(...args: string[]): Promise<CliResult> {
  const { url, key } = bench.gateway;
  return runCli(args, { env: { HEADGATE_URL: url, HEADGATE_API_KEY: key } });
}

async function get(path: string): Promise<Body> {
  return (await bench.gateway.request(path)).json();
}

const healthOf = async (): Promise<unknown> => (await get('/v1/admin/engines/far')).replicas[0]?.healthy;

/** The line of the log about the last chat. */
const lastRequest = (): Body =>
  bench.gateway.logLines
    .map((line): Body => JSON.parse(line))
    .findLast(({ route }) => route === '/v1/chat/completions');

describe('a command for an external engine', () => {
  it('is rejected at once for restart, and changes nothing', async () => {
    const text = /is an external engine, which Headgate cannot restart/;
    for (const words of [[], ['--no-wait']]) {
      const { code, stdout, stderr } = await headgate('engines', 'restart', 'far', ...words);
      expect([code, stdout]).toEqual([1, '']);
      expect(stderr).toMatch(text);
    }
    const answer = await bench.gateway.request('/v1/admin/engines/far/restart', { method: 'POST' });
    expect(answer.status).toBe(409);
    const rows = await bench.gateway.db.sql`SELECT 1 FROM audit_log WHERE action = 'engine.restart_ordered'`;
    expect(rows).toHaveLength(0);
    expect((await headgate('engines', 'restart', '--help')).stdout).toContain('not for external engines');
  });

  it('fails for start and reset when no address responds, and succeeds when one does', async () => {
    await server.close();
    // The next tests need it, and wait for it without a limit.
    onTestFinished(() => server.open());
    for (const kind of ['start', 'reset']) {
      const { code, stdout } = await headgate('engines', kind, 'far');
      expect([kind, code]).toEqual([kind, 1]);
      expect(stdout).toMatch(new RegExp(`^far: failed, .*does not answer: 127\\.0\\.0\\.1:${server.port}\n$`));
      expect(stdout).not.toContain('engines reset');
    }
    expect((await headgate('engines', 'ls')).stdout).toMatch(/^far +failed +- +0\/1 .*does not answer/m);
    expect(await get('/v1/models/far')).toMatchObject({ status: 'failed' });

    await server.open();
    expect(await headgate('engines', 'start', 'far')).toMatchObject({ code: 0, stdout: 'far: ready\n' });
    expect(await get('/v1/models/far')).toMatchObject({ status: 'ready' });
    expect((await headgate('engines', 'stop', 'far')).code).toBe(0);
    await server.close();
    expect((await headgate('engines', 'start', 'far')).code).toBe(1);
    await server.open();
    expect((await headgate('engines', 'reset', 'far')).code).toBe(0);
  });

  it('explains for logs that an external engine has no log here', async () => {
    for (const words of [[], ['-f']]) {
      const { code, stdout, stderr } = await headgate('engines', 'logs', 'far', ...words);
      expect([code, stdout]).toEqual([0, '']);
      expect(stderr).toMatch(/^far has no log here, because it is external/);
    }
  });
});

describe('an external engine that rejects requests', () => {
  it.each([
    [404, 'check upstream_model'],
    [401, 'check api_key_env'],
    [403, 'check api_key_env'],
    [500, ''],
  ])('with status %d names the setting to its operator, and hides it from its client', async (status, advice) => {
    server.status = status;
    const answer = await bench.chat({ model: 'far' });
    const text = await answer.text();
    expect(answer.status).toBe(502);
    expect(text).toContain('upstream_error');
    expect(text).not.toContain('vllm-secret-name');
    expect(text).not.toContain(`${status}`);
    await eventually(() => Promise.resolve(lastRequest()?.reason === `engine_${status}`));
    expect(bench.gateway.logLines.join('\n')).not.toContain('vllm-secret-name');
    const { state, last_failure: failure } = await get('/v1/admin/engines/far');
    expect(state).toBe('ready');
    expect(failure.detail).toContain(`answered ${status} to POST /v1/chat/completions`);
    expect(failure.detail).toContain(advice);
    expect((await headgate('engines', 'ls')).stdout).toContain(failure.detail);
    server.status = 200;
    expect((await bench.chat({ model: 'far' })).status).toBe(200);
    expect((await get('/v1/admin/engines/far')).last_failure).toBeNull();
  });

  it('counts as healthy when its health check requires a key', async () => {
    server.health = 401;
    await headgate('engines', 'start', 'far', '--no-wait');
    await eventually(async () => (await healthOf()) === true);
    expect(await headgate('engines', 'start', 'far')).toMatchObject({ code: 0, stdout: 'far: ready\n' });
    server.health = 200;
  });
});
