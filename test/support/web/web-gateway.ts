import { once } from 'node:events';
import { createServer, request, type RequestListener } from 'node:http';
import { type AddressInfo, connect, createServer as createSocketServer, type Socket } from 'node:net';
import { afterAll, afterEach, beforeAll } from 'vitest';
import { uuidv7 } from '#base/id.ts';
import { freePort } from '#test/free-port.ts';
import { startGateway, type TestGateway } from '#test/gateway.ts';
import { type Body, eventually, openOrganization } from '#test/inference/inference-gateway.ts';

/** The listener for web addresses of runs, without a proxy before it; runs are rows, as Terraform would have left them. */

export interface Asked {
  readonly method?: string;
  readonly body?: unknown;
  readonly key?: string;
}

export interface Got {
  readonly status: number;
  readonly text: string;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
}

export interface RunOptions {
  readonly cluster?: Body;
  readonly stack?: string;
  readonly node?: string;
  readonly access?: 'public' | 'members';
}

export const uuidOf = (id: string): string => id.replace(/^.*_(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5');

export interface Exposed {
  readonly run: Body;
  readonly host: string;
  readonly clusterId: string;
}

/** A gateway for the tests of a file, with an organization, and what is put behind its web addresses. */
export class WebGateway {
  gateway!: TestGateway;
  webPort = 0;
  organization = { id: '', key: '' };
  readonly #cleanups: (() => unknown)[] = [];
  #count = 0;

  async start(env: Readonly<Record<string, string>>): Promise<void> {
    this.webPort = await freePort();
    this.gateway = await startGateway({ env: { HEADGATE_WEB_PORT: String(this.webPort), ...env } });
    this.organization = await openOrganization(this.gateway, '5');
  }

  /** Done after the test. */
  after(cleanup: () => unknown): void {
    this.#cleanups.push(cleanup);
  }

  async cleanUp(): Promise<void> {
    for (const cleanup of this.#cleanups.splice(0).toReversed()) await cleanup();
  }

  async ask(path: string, options: Asked = {}): Promise<{ status: number; body: Body }> {
    const answer = await this.gateway.request(path, options);
    const text = await answer.text();
    return { status: answer.status, body: text === '' ? null : JSON.parse(text) };
  }

  async makeCluster(more: object = {}): Promise<Body> {
    const node = { name: 'n0', address: '127.0.0.1', ssh_port: 1, hardware_profile: 'plain' };
    const name = `site-${(this.#count += 1)}`;
    const body = { name, organization_id: this.organization.id, public_domain: 'apps.test', nodes: [node], ...more };
    return (await this.ask('/v1/clusters', { body })).body;
  }

  /** A run that is APPLIED. */
  async applied(
    port: number,
    { cluster, stack = 'web', node = '', access = 'public' }: RunOptions = {},
  ): Promise<{ id: string; clusterId: string }> {
    const { id: clusterId, organization_id: owner } = cluster ?? (await this.makeCluster());
    const [id, installation, version] = [uuidv7(), uuidv7(), uuidv7()];
    const { sql } = this.gateway.db;
    await sql`
      insert into installations (id, cluster_id, stack_id, stack_name, node, created_at)
      values (${installation}, ${uuidOf(clusterId)}, ${uuidv7()}, ${stack}, ${node}, now())`;
    const web = JSON.stringify({ port, node: null, path: '/' });
    await sql`
      insert into runs (id, installation_id, cluster_id, organization_id, stack_version_id, operation, status, inputs,
        created_at, ended_at, web, access)
      values (${id}, ${installation}, ${uuidOf(clusterId)}, ${uuidOf(owner)}, ${version}, 'apply', 'APPLIED', '',
        now(), now(), ${web}::jsonb, ${access})`;
    return { id, clusterId };
  }

  /** The same. @returns its host, once that is known */
  async exposed(port: number, options: RunOptions = {}): Promise<Exposed> {
    const { id, clusterId } = await this.applied(port, options);
    const run = await eventually(async () => {
      const { body } = await this.ask(`/v1/runs/run_${id.replaceAll('-', '')}`);
      if (body.url === null) return null;
      const answer = await this.get(new URL(body.url).host, '/').catch(() => null);
      return answer?.status === 404 ? null : body;
    });
    return { run, host: new URL(run.url).host, clusterId };
  }

  get(host: string, path: string, headers: Readonly<Record<string, string>> = {}, method = 'GET'): Promise<Got> {
    return new Promise((resolve, reject) => {
      const to = { host: '127.0.0.1', port: this.webPort };
      const asked = request({ ...to, method, path, headers: { host, ...headers }, agent: false });
      asked.on('error', reject);
      asked.on('response', (response) => {
        let text = '';
        response.on('data', (chunk: Buffer) => (text += chunk.toString()));
        response.on('error', reject);
        response.on('end', () => resolve({ status: response.statusCode ?? 0, text, headers: response.headers }));
      });
      asked.end();
    });
  }

  /** Everything that comes back for bytes over a connection, until it ends. */
  async raw(bytes: string): Promise<string> {
    const socket = connect(this.webPort, '127.0.0.1');
    let text = '';
    socket.on('data', (chunk: Buffer) => (text += chunk.toString('latin1'))).on('error', () => undefined);
    socket.write(bytes);
    await once(socket, 'close');
    return text;
  }

  /** Something that speaks HTTP, and opens every websocket. @returns its port */
  async application(
    answer: RequestListener = (incoming, outgoing) => outgoing.end(`says ${incoming.url}`),
  ): Promise<number> {
    const open = new Set<Socket>();
    const server = createServer(answer);
    server.on('upgrade', (_, socket) => {
      socket.on('error', () => undefined).on('end', () => socket.end());
      socket.write('HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n');
    });
    server.on('connection', (socket) => open.add(socket));
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    this.after(() => {
      for (const socket of open) socket.destroy();
      return new Promise((resolve) => server.close(resolve));
    });
    return (server.address() as AddressInfo).port;
  }

  /** An application that sends these bytes to whoever connects. */
  async speaking(bytes: string): Promise<number> {
    const server = createSocketServer((socket) => {
      socket.on('error', () => undefined);
      socket.once('data', () => socket.end(bytes));
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    this.after(() => new Promise((resolve) => server.close(resolve)));
    return (server.address() as AddressInfo).port;
  }

  async websocket(
    host: string,
    headers: Readonly<Record<string, string>> = {},
  ): Promise<{ readonly status: string; readonly socket: Socket }> {
    const socket = connect(this.webPort, '127.0.0.1').on('error', () => undefined);
    const lines = Object.entries({ host, connection: 'Upgrade', upgrade: 'websocket', ...headers });
    const text = lines.map(([name, value]) => `${name}: ${value}\r\n`).join('');
    socket.write(`GET /socket HTTP/1.1\r\n${text}\r\n`);
    this.after(() => socket.destroy());
    const [chunk] = (await once(socket, 'data')) as [Buffer];
    return { status: chunk.toString().slice(9, 12), socket };
  }

  /** A link to an address for members, as its path. */
  async link(runId: string, key: string): Promise<string> {
    const { status, body } = await this.ask(`/v1/runs/${runId}/open`, { method: 'POST', key });
    if (status !== 200) throw new Error(JSON.stringify(body));
    const { pathname, search } = new URL(body.url);
    return pathname + search;
  }

  /** Uses a link. @returns the cookie, as it is sent back */
  async enter({ host, run }: Exposed, key: string): Promise<string> {
    const { status, headers } = await this.get(host, await this.link(run.id, key), {}, 'POST');
    if (status !== 303) throw new Error(`the link was answered with ${status}`);
    return headers['set-cookie']?.[0]?.split(';')[0] ?? '';
  }
}

export function useWebGateway(env: Readonly<Record<string, string>> = {}): WebGateway {
  const web = new WebGateway();
  beforeAll(() => web.start(env));
  afterAll(() => web.gateway.stop());
  afterEach(() => web.cleanUp());
  return web;
}
