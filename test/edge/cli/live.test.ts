import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { beforeAll, describe, expect, it } from 'vitest';
import { say } from '#test/cli/in-process.ts';
import { runCli } from '#test/cli/run-cli.ts';
import { type Body, eventually, standinFile, useInference } from '#test/inference/inference-gateway.ts';

const bench = useInference(() => ({ engines: { chat: standinFile('chat') } }));
const here = () => ({ url: bench.gateway.url, key: bench.gateway.key });
const ask = async (body: object): Promise<string> => {
  const answer = await bench.chat({ model: 'chat', max_tokens: 5, ...body });
  await answer.text();
  return answer.headers.get('x-request-id') ?? '';
};

let ended = '';
let refused = '';

beforeAll(async () => {
  ended = await ask({ user: 'anna' });
  refused = await ask({ model: 'nothing', user: 'anna' });
  await eventually(async () => {
    const { data }: Body = await (await bench.gateway.request('/v1/usage/rejected')).json();
    return data.length > 0 ? data : null;
  });
});

describe('headgate logs', () => {
  it('prints recorded and rejected requests, oldest first, and finds them', async () => {
    const { code, stdout } = await say(['logs'], here());
    expect(code).toBe(0);
    const lines = stdout.trimEnd().split('\n');
    expect(lines[0]).toContain(`${ended} 200 chat`);
    expect(lines[1]).toContain(`${refused} 400 - model_not_found: `);
    expect((await say(['logs', '--user', 'anna', '--tail', '5'], here())).stdout).toContain(ended);
    expect((await say(['logs', '--error', 'NOTHING'], here())).stdout.trimEnd().split('\n')).toHaveLength(1);
    expect((await say(['logs', '--user', 'nobody'], here())).stdout).toBe('no requests\n');
    expect(await say(['logs', '--tail', 'all'], here())).toMatchObject({ code: 2 });
    const [first = ''] = (await say(['logs', '--json'], here())).stdout.split('\n');
    expect(JSON.parse(first)).toMatchObject({ id: ended });
  });

  it('prints each new request once with -f, until it is ended', async () => {
    const { url, key } = here();
    const asked: Promise<string>[] = [];
    const { stdout } = await runCli(['logs', '-f', '--tail', '1'], {
      env: { HEADGATE_URL: url, HEADGATE_API_KEY: key },
      until: (printed) => {
        if (asked.length === 0) asked.push(ask({ user: 'anna' }));
        return printed.split('\n').length > 2;
      },
    });
    const lines = stdout.trimEnd().split('\n');
    expect(lines[0]).toContain(refused);
    expect(lines.slice(1)).toEqual([expect.stringContaining(`${await asked[0]} 200 chat`)]);
  });
});

describe('headgate top', () => {
  it('prints engines, sums of today and the newest requests once where nobody watches', async () => {
    const { code, stdout } = await say(['top'], here());
    expect(code).toBe(0);
    expect(stdout).toMatch(/UTC, spent today: \$0\.0/);
    expect(stdout).toMatch(/chat +ready +1\/1 +0 +0\n/);
    expect(stdout).toMatch(/chat +2 +0 /);
    const { today, requests }: Body = JSON.parse((await say(['top', '--json'], here())).stdout);
    expect([today.totals.num_model_requests, requests[0].id]).toEqual([2, expect.any(String)]);
    const made: Body = await (await bench.post('/v1/keys', { name: 'no administrator' })).json();
    const own = await say(['top'], { ...here(), key: made.secret });
    expect(own).toMatchObject({ code: 0, stdout: expect.not.stringContaining('ENGINE') });
  });
});

describe('headgate open', () => {
  it.each([
    [[], '/'],
    [['wallet'], '/portal/wallet'],
    [['qwen/qwen3 4b'], '/portal/models/qwen%2Fqwen3%204b'],
    [['key_019ab1c2d3e47f008a1b2c3d4e5f6071'], '/portal/keys/key_019ab1c2d3e47f008a1b2c3d4e5f6071'],
    [['019AB1C2-d3e4-7f00-8a1b-2c3d4e5f6071'], '/portal/usage/019ab1c2-d3e4-7f00-8a1b-2c3d4e5f6071'],
    [['../../x'], '/portal/models/..%2F..%2Fx'],
  ])('prints the address of %j', async (words, path) => {
    const { url } = here();
    expect(await say(['open', ...words], here())).toMatchObject({ code: 0, stdout: `${url}${path}\n` });
  });

  it('prints a request that was running when -f started, also behind newer ones, once it ends', async () => {
    const { url, key } = here();
    const running = ask({ user: 'carol', standin: { ttft_ms: 4000 } });
    await ask({ user: 'dave' });
    const { stdout } = await runCli(['logs', '-f', '--tail', '1'], {
      env: { HEADGATE_URL: url, HEADGATE_API_KEY: key },
      until: (printed) => printed.split('\n').length > 2,
    });
    expect(stdout).toContain(await running);
  });

  it('waits with -f for a gateway that does not answer, and says so once', async () => {
    const { url, key } = here();
    let polls = 0;
    const proxy = createServer((request, response) => {
      polls += 1;
      // The first list is two requests.
      if (polls > 2 && polls < 7) return void response.destroy();
      void fetch(`${url}${request.url}`, { headers: { authorization: `Bearer ${key}` } })
        .then(async (answer) => response.writeHead(answer.status).end(await answer.text()))
        .catch(() => response.destroy());
    });
    await new Promise<void>((resolve) => proxy.listen(0, '127.0.0.1', resolve));
    const { port } = proxy.address() as AddressInfo;
    const asked: Promise<string>[] = [];
    const { stdout, stderr } = await runCli(['logs', '-f', '--tail', '1'], {
      env: { HEADGATE_URL: `http://127.0.0.1:${port}`, HEADGATE_API_KEY: key },
      until: (printed) => {
        if (asked.length === 0) asked.push(ask({ user: 'anna' }));
        return printed.split('\n').length > 2;
      },
    });
    proxy.close();
    expect(stdout).toContain(await asked[0]);
    expect(stderr.match(/retrying until the gateway answers/g)).toHaveLength(1);
  });
});
