import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, describe, expect, it } from 'vitest';
import { type Body, eventually, externalFile, useInference } from '#test/inference/inference-gateway.ts';

/** An external server, which can become unreachable and come back at its address. */
class FarServer {
  readonly name: string;
  chats = 0;
  health = 404;
  port = 0;
  #server: Server | null = null;

  constructor(name: string) {
    this.name = name;
  }

  async open(): Promise<void> {
    const server = createServer((request, answer) => {
      if (request.method === 'GET') {
        answer.writeHead(request.url === '/health' ? this.health : 404).end();
        return;
      }
      this.chats += 1;
      const message = { role: 'assistant', content: this.name };
      const usage = { prompt_tokens: 3, completion_tokens: 1, total_tokens: 4 };
      const choices = [{ index: 0, message, finish_reason: 'stop' }];
      request.resume().on('end', () => answer.end(JSON.stringify({ id: 'x', model: 'theirs', choices, usage })));
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

  get host(): string {
    return `127.0.0.1:${this.port}`;
  }
}

const servers = [new FarServer('one'), new FarServer('two')] as const;
const [one, two] = servers;
afterAll(() => Promise.all(servers.map((server) => server.close())));

const bench = useInference(async () => {
  await Promise.all(servers.map((server) => server.open()));
  const urls = `urls: [${servers.map(({ host }) => `http://${host}`).join(', ')}]`;
  return { engines: { far: externalFile('far', 'URL').replace('url: URL', urls) } };
});

async function ask(): Promise<string> {
  const answer = await bench.chat({ model: 'far' });
  const body: Body = await answer.json();
  return answer.status === 200 ? body.choices[0].message.content : `status ${answer.status}`;
}

async function engine(): Promise<Body> {
  return (await bench.gateway.request('/v1/admin/engines/far')).json();
}

const healthOf = async ({ host }: FarServer): Promise<unknown> =>
  (await engine()).replicas.find((replica: Body) => replica.host === host)?.healthy;

describe('an external engine with several addresses', () => {
  it('has one replica per address and uses all of them', async () => {
    await eventually(async () => {
      await Promise.all(Array.from({ length: 8 }, ask));
      return servers.every(({ chats }) => chats > 0);
    });
    const { state, replicas, replicas_max: most, hosts } = await engine();
    expect({ state, most }).toEqual({ state: 'ready', most: 2 });
    expect(hosts.toSorted()).toEqual(servers.map(({ host }) => host).toSorted());
    // The client that pays for a request sees which replica it was, and no address.
    for (const { id } of replicas) expect(id).toMatch(/^external:far:[0-9a-f]{8}$/);
  });

  it('answers every request while one address is down, and uses it again when it is back', async () => {
    await one.close();
    for (let asked = 0; asked < 20; asked += 1) expect(await ask()).toBe('two');
    await eventually(async () => (await healthOf(one)) === false);
    expect(await healthOf(two)).not.toBe(false);
    await one.open();
    await eventually(async () => (await healthOf(one)) === true);
    await eventually(async () => (await Promise.all(Array.from({ length: 8 }, ask))).includes('one'));
  });

  it('sends no requests to an address whose health check fails', async () => {
    two.health = 503;
    await eventually(async () => (await healthOf(two)) === false);
    for (let asked = 0; asked < 10; asked += 1) expect(await ask()).toBe('one');
    two.health = 200;
    await eventually(async () => (await healthOf(two)) === true);
  });

  it('fails fast when no address answers, and serves when one is back', async () => {
    await Promise.all(servers.map((server) => server.close()));
    await eventually(async () => (await healthOf(one)) === false && (await healthOf(two)) === false);
    expect(await ask()).toMatch(/^status 50[23]$/);
    await two.open();
    await eventually(async () => (await ask()) === 'two');
    await one.open();
  });
});
