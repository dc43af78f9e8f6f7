import { once } from 'node:events';
import { createServer, request } from 'node:http';
import { type AddressInfo, connect, createServer as createSocketServer, type Socket } from 'node:net';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { uuidv7 } from '#base/id.ts';
import { freePort } from '../../support/free-port.ts';
import { startGateway, type TestGateway } from '../../support/gateway.ts';
import { type Body, eventually, openOrganization } from '../inference/inference-gateway.ts';

/** The listener for web addresses of runs, without a proxy before it; runs are rows, as Terraform would have left them. */

let gateway: TestGateway;
let webPort = 0;
let organization = { id: '', key: '' };
const cleanups: (() => unknown)[] = [];

beforeAll(async () => {
  webPort = await freePort();
  const env = {
    HEADGATE_WEB_PORT: String(webPort),
    HEADGATE_BOOTSTRAP_KEY: 'an+operators.own/key~abcdefghijkl',
    HEADGATE_OWN_HOSTS: 'api.example.com',
    HEADGATE_BODY_STALL_SECONDS: '1',
  };
  gateway = await startGateway({ env });
  organization = await openOrganization(gateway, '5');
});
afterAll(() => gateway.stop());
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).toReversed()) await cleanup();
});

async function ask(path: string, options: object = {}): Promise<{ status: number; body: Body }> {
  const answer = await gateway.request(path, options);
  const text = await answer.text();
  return { status: answer.status, body: text === '' ? null : JSON.parse(text) };
}

let count = 0;
async function makeCluster(more: object = {}): Promise<Body> {
  const node = { name: 'n0', address: '127.0.0.1', ssh_port: 1, hardware_profile: 'plain' };
  const name = `site-${(count += 1)}`;
  const body = { name, organization_id: organization.id, public_domain: 'apps.test', nodes: [node], ...more };
  return (await ask('/v1/clusters', { body })).body;
}

const uuidOf = (id: string): string => id.replace(/^.*_(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5');

/** A run that is APPLIED. */
async function applied(
  port: number,
  { cluster, stack = 'web', node = '' }: { cluster?: Body; stack?: string; node?: string },
) {
  const { id: clusterId } = cluster ?? (await makeCluster());
  const [id, installation, version] = [uuidv7(), uuidv7(), uuidv7()];
  const { sql } = gateway.db;
  await sql`
    insert into installations (id, cluster_id, stack_id, stack_name, node, created_at)
    values (${installation}, ${uuidOf(clusterId)}, ${uuidv7()}, ${stack}, ${node}, now())`;
  const web = JSON.stringify({ port, node: null, path: '/' });
  await sql`
    insert into runs (id, installation_id, cluster_id, organization_id, stack_version_id, operation, status, inputs,
      created_at, ended_at, web)
    values (${id}, ${installation}, ${uuidOf(clusterId)}, ${uuidOf(organization.id)}, ${version}, 'apply', 'APPLIED', '',
      now(), now(), ${web}::jsonb)`;
  return { id, clusterId };
}

/** The same. @returns its host, once that is known */
async function exposed(port: number, options: Parameters<typeof applied>[1]) {
  const { id, clusterId } = await applied(port, options);
  const run = await eventually(async () => {
    const { body } = await ask(`/v1/runs/run_${id.replaceAll('-', '')}`);
    if (body.url === null) return null;
    const answer = await get(new URL(body.url).host, '/').catch(() => null);
    return answer?.status === 404 ? null : body;
  });
  return { run, host: new URL(run.url).host, clusterId };
}

interface Got {
  readonly status: number;
  readonly text: string;
}

function get(host: string, path: string, headers: Readonly<Record<string, string>> = {}): Promise<Got> {
  return new Promise((resolve, reject) => {
    const asked = request({ host: '127.0.0.1', port: webPort, path, headers: { host, ...headers }, agent: false });
    asked.on('error', reject);
    asked.on('response', (response) => {
      let text = '';
      response.on('data', (chunk: Buffer) => (text += chunk.toString()));
      response.on('error', reject);
      response.on('end', () => resolve({ status: response.statusCode ?? 0, text }));
    });
    asked.end();
  });
}

/** Everything that comes back for bytes over a connection, until it ends. */
async function raw(bytes: string): Promise<string> {
  const socket = connect(webPort, '127.0.0.1');
  let text = '';
  socket.on('data', (chunk: Buffer) => (text += chunk.toString('latin1'))).on('error', () => undefined);
  socket.write(bytes);
  await once(socket, 'close');
  return text;
}

async function application(answer: (url: string) => string = (url) => `says ${url}`): Promise<number> {
  const open = new Set<Socket>();
  const server = createServer((incoming, outgoing) => outgoing.end(answer(incoming.url ?? '')));
  server.on('upgrade', (_, socket) => {
    socket.on('error', () => undefined).on('end', () => socket.end());
    socket.write('HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n');
  });
  server.on('connection', (socket) => open.add(socket));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  cleanups.push(() => {
    for (const socket of open) socket.destroy();
    return new Promise((resolve) => server.close(resolve));
  });
  return (server.address() as AddressInfo).port;
}

/** An application that sends these bytes to whoever connects. */
async function speaking(bytes: string): Promise<number> {
  const server = createSocketServer((socket) => {
    socket.on('error', () => undefined);
    socket.once('data', () => socket.end(bytes));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  cleanups.push(() => new Promise((resolve) => server.close(resolve)));
  return (server.address() as AddressInfo).port;
}

async function websocket(host: string): Promise<{ readonly status: string; readonly socket: Socket }> {
  const socket = connect(webPort, '127.0.0.1').on('error', () => undefined);
  socket.write(`GET /socket HTTP/1.1\r\nHost: ${host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n`);
  cleanups.push(() => socket.destroy());
  const [chunk] = (await once(socket, 'data')) as [Buffer];
  return { status: chunk.toString().slice(9, 12), socket };
}

describe('a cluster is refused', () => {
  it.each(['api.example.com', 'example.com', 'apps.api.example.com'])(
    'the public domain %s, which the gateway has a part in',
    async (domain) => {
      const body = { name: 'own', organization_id: organization.id, public_domain: domain };
      const made = await ask('/v1/clusters', { body });
      expect([made.status, made.body.error.details]).toEqual([
        400,
        [{ field: 'public_domain', message: expect.stringContaining('a domain apart from the gateway') }],
      ]);
      const cluster = await makeCluster();
      const patched = await ask(`/v1/clusters/${cluster.id}`, { method: 'PATCH', body: { public_domain: domain } });
      expect([patched.status, patched.body.error.details[0].field]).toEqual([400, 'public_domain']);
    },
  );
});

describe('a request is refused', () => {
  it('for a host that is none, in a circle, with too many headers, and with a body that stops', async () => {
    const { host } = await exposed(await application(), {});
    for (const other of ['127.0.0.1', 'apps.test', `${host}.`, `x.${host}`, 'user@host', `${host},${host}`]) {
      const { status } = await get(other, '/');
      expect([other, status]).toEqual([other, other.includes('@') || other.includes(',') ? 400 : 404]);
    }
    expect((await get(host, '/', { 'x-headgate-hops': '4' })).status).toBe(508);
    expect((await get(host, '/', { 'x-headgate-hops': '3' })).status).toBe(200);
    expect(await raw(`GET / HTTP/1.1\r\nHost: ${host}\r\nX: ${'x'.repeat(33_000)}\r\n\r\n`)).toMatch(/^HTTP\/1.1 431 /);
    const stopped = await raw(`POST / HTTP/1.1\r\nHost: ${host}\r\nContent-Length: 10\r\n\r\nabc`);
    expect(stopped).not.toContain('HTTP/1.1 200 OK\r\ncontent-length: 10');
    expect((await get(host.toUpperCase(), '/upper')).text).toBe('says /upper');
  });

  it('with a key of the gateway in its query or headers, one that the operator chose too', async () => {
    const { host } = await exposed(await application(), {});
    for (const key of [gateway.key, organization.key]) {
      const basic = Buffer.from(`user:${key}`).toString('base64');
      const places: [path: string, headers: Record<string, string>][] = [
        [`/?api_key=${key}`, {}],
        [`/?x=%zz&api_key=${encodeURIComponent(key)}`, {}],
      ];
      for (const authorization of [`Bearer ${key}`, key, `Bearer\t${key}`, `Bearer "${key}"`, `Basic ${basic}`]) {
        places.push(['/', { authorization }]);
      }
      places.push(['/', { cookie: `a=b; token=${key}` }], ['/', { 'x-goog-api-key': key }]);
      places.push(['/', { 'sec-websocket-protocol': `realtime, openai-insecure-api-key.${key}` }]);
      for (const [path, headers] of places) {
        expect([path, headers, (await get(host, path, headers)).status]).toEqual([path, headers, 400]);
      }
    }
    const other = {
      authorization: `Bearer ${gateway.key.toUpperCase()}`,
      cookie: 'token=its-own-and-32-characters-or-more',
    };
    expect((await get(host, '/', other)).status).toBe(200);
  });

  it('where the application does not answer, or answers what is no HTTP', async () => {
    const nobody = await exposed(await freePort(), {});
    expect(await get(nobody.host, '/')).toEqual({ status: 502, text: expect.stringContaining('does not answer') });
    expect(nobody.run.url_status).toBe('pending');
    const garbage = await exposed(await speaking('SSH-2.0-OpenSSH\r\n'), {});
    expect(await get(garbage.host, '/')).toEqual({ status: 502, text: expect.stringContaining('no valid HTTP') });
    const twice = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\nok';
    expect((await get((await exposed(await speaking(twice), {})).host, '/')).status).toBe(502);
    const cut = await exposed(await speaking('HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf'), {});
    await expect(get(cut.host, '/')).rejects.toThrow(/aborted|hang up|reset/);
  });

  it('beyond 256 connections of one address, and of no other', async () => {
    const port = await application();
    const [{ host }, other] = [await exposed(port, {}), await exposed(port, {})];
    const open = await Promise.all(Array.from({ length: 256 }, () => websocket(host)));
    expect(new Set(open.map(({ status }) => status))).toEqual(new Set(['101']));
    expect((await websocket(host)).status).toBe('503');
    expect((await get(host, '/')).status).toBe(503);
    expect((await get(other.host, '/')).status).toBe(200);
    open[0]?.socket.destroy();
    await expect.poll(async () => (await get(host, '/')).status).toBe(200);
  });
});

describe('an address', () => {
  it('is told with the first answer that says applied, and is for members alone by then', async () => {
    const port = await application();
    for (let round = 0; round < 3; round += 1) {
      const { id } = await applied(port, {});
      const answer = await ask(`/v1/runs/run_${id.replaceAll('-', '')}`);
      expect(answer.body).toMatchObject({
        status: 'APPLIED',
        url: expect.stringContaining('https://'),
        url_status: expect.stringMatching(/^(pending|ready)$/),
      });
      const host = new URL(answer.body.url).host;
      expect((await get(host, '/')).status).toBe(200);
      const next = uuidv7();
      await gateway.db.sql.begin(async (tx) => {
        await tx`
          insert into runs (id, installation_id, cluster_id, organization_id, stack_version_id, operation, status,
            inputs, created_at, ended_at, web, access)
          select ${next}, installation_id, cluster_id, organization_id, stack_version_id, operation, status, inputs,
            now(), now(), web, 'members' from runs where id = ${id}`;
        await tx`update runs set status = 'SUPERSEDED' where id = ${id}`;
      });
      expect((await ask('/v1/runs')).body.data[0]).toMatchObject({ status: 'APPLIED', url: answer.body.url });
      expect((await get(host, '/')).status).not.toBe(200);
    }
  });

  it('keeps the cookies of its application to itself, whatever domain they name', async () => {
    const cookies =
      'Set-Cookie: a=1; Domain=apps.test; Path=/\r\nSet-Cookie: b=2;domain = .test ;Secure\r\nSet-Cookie: c=3; HttpOnly';
    const { host } = await exposed(await speaking(`HTTP/1.1 200 OK\r\n${cookies}\r\nContent-Length: 2\r\n\r\nok`), {});
    const text = await raw(`GET / HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n\r\n`);
    const lines = text.split('\r\n').filter((line) => line.startsWith('Set-Cookie'));
    expect(lines).toEqual(['Set-Cookie: a=1; Path=/', 'Set-Cookie: b=2;Secure', 'Set-Cookie: c=3; HttpOnly']);
  });

  it('has a name of its own beside others of the same stack, and keeps it', async () => {
    const cluster = await makeCluster();
    const port = await application();
    const first = await exposed(port, { cluster });
    const second = await exposed(port, { cluster, node: 'n0' });
    expect(first.host).toBe(`web--${cluster.name}.apps.test`);
    expect(second.host).toMatch(new RegExp(`^web--${cluster.name}-[0-9a-f]{6}\\.apps\\.test$`));
    expect((await ask(`/v1/runs/${second.run.id}`)).body.url).toBe(`https://${second.host}/`);
  });

  it('is gone with its cluster, and what is open there at once', async () => {
    const { host, clusterId } = await exposed(await application(), {});
    const { socket } = await websocket(host);
    const closed = once(socket, 'close');
    expect((await ask(`/v1/clusters/${clusterId}`, { method: 'DELETE' })).status).toBe(204);
    await closed;
    expect((await get(host, '/')).status).toBe(404);
  });

  it('closes what strangers have open when its cluster asks for members', async () => {
    const { host, clusterId, run } = await exposed(await application(), {});
    const { socket } = await websocket(host);
    const closed = once(socket, 'close');
    expect((await ask(`/v1/clusters/${clusterId}`, { method: 'PATCH', body: { access: 'members' } })).status).toBe(200);
    await closed;
    expect((await get(host, '/')).status).toBe(401);
    const opened = await ask(`/v1/runs/${run.id}/open`, { method: 'POST', key: organization.key });
    const { pathname, search } = new URL(opened.body.url);
    expect((await get(host, pathname + search)).status).toBe(303);
    const [noted] = await gateway.db.sql`select action, after from audit_log where action = 'run.opened'`;
    expect(noted).toMatchObject({ action: 'run.opened', after: { host } });
  });
});
