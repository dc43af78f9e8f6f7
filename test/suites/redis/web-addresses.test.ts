import { once } from 'node:events';
import { createServer, request } from 'node:http';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { uuidv7 } from '#base/id.ts';
import { type Body, eventually } from '#test/inference/inference-gateway.ts';
import { uuidOf } from '#test/web/web-gateway.ts';
import { freePorts } from '#test/free-port.ts';
import { type Cluster, startCluster } from '#test/redis/gateway-cluster.ts';

/** Two gateways that serve the same web addresses, each to a proxy of its own; runs are rows. */

let gateways: Cluster;
let webPorts: readonly [number, number] = [0, 0];
const app = createServer((incoming, outgoing) => outgoing.end(`says ${incoming.url}`));
const open = new Set<Socket>();

beforeAll(async () => {
  app.on('upgrade', (_, socket) => {
    socket.on('error', () => undefined).on('end', () => socket.end());
    socket.write('HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n');
  });
  app.on('connection', (socket: Socket) => open.add(socket));
  await new Promise<void>((resolve) => app.listen(0, '127.0.0.1', resolve));
  const first = await freePorts(2);
  webPorts = [first, first + 1];
  gateways = await startCluster({ count: 0 });
  for (const port of webPorts) await gateways.start({ HEADGATE_WEB_PORT: String(port) });
});

afterAll(async () => {
  await gateways.stop();
  for (const socket of open) socket.destroy();
  await new Promise((resolve) => app.close(resolve));
});

const [here, there] = [0, 1] as const;
type Which = typeof here | typeof there;

interface Got {
  readonly status: number;
  readonly text: string;
  readonly cookie: string;
}

/** A gateway's answer for a web address. */
function get(
  which: Which,
  host: string,
  path: string,
  { method = 'GET', ...headers }: { readonly method?: string; readonly cookie?: string } = {},
): Promise<Got> {
  return new Promise((resolve, reject) => {
    const to = { host: '127.0.0.1', port: webPorts[which], agent: false };
    const asked = request({ ...to, method, path, headers: { host, ...headers } });
    asked.on('error', reject);
    asked.on('response', (response) => {
      let text = '';
      response.on('data', (chunk: Buffer) => (text += chunk.toString()));
      const cookie = response.headers['set-cookie']?.[0]?.split(';')[0] ?? '';
      response.on('end', () => resolve({ status: response.statusCode ?? 0, text, cookie }));
    });
    asked.end();
  });
}

async function websocket(which: Which, host: string, cookie: string): Promise<Socket> {
  const socket = connect(webPorts[which], '127.0.0.1').on('error', () => undefined);
  const lines = [`Host: ${host}`, 'Connection: Upgrade', 'Upgrade: websocket', `Cookie: ${cookie}`];
  socket.write(`GET /socket HTTP/1.1\r\n${lines.join('\r\n')}\r\n\r\n`);
  const [chunk] = (await once(socket, 'data')) as [Buffer];
  expect(chunk.toString().slice(9, 12)).toBe('101');
  return socket;
}

async function ask(which: Which, path: string, options: object = {}): Promise<Body> {
  const answer = await gateways.ask(which, path, options);
  const text = await answer.text();
  if (!answer.ok) throw new Error(text);
  return text === '' ? null : JSON.parse(text);
}

interface Applied {
  readonly id: string;
  readonly installation: string;
  readonly cluster: Body;
  readonly organization: { readonly id: string; readonly key: string };
}

let count = 0;
/** A run that is APPLIED, asked for at the first gateway. */
async function applied(access: 'public' | 'members'): Promise<Applied> {
  const organization = await gateways.organization('1');
  const node = { name: 'n0', address: '127.0.0.1', ssh_port: 1, hardware_profile: 'plain' };
  const name = `site-${(count += 1)}`;
  const made = { name, organization_id: organization.id, public_domain: 'apps.test', nodes: [node] };
  const cluster = await ask(here, '/v1/clusters', { body: made });
  const [run, installation] = [uuidv7(), uuidv7()];
  const { sql } = gateways;
  await sql`
    insert into installations (id, cluster_id, stack_id, stack_name, node, created_at)
    values (${installation}, ${uuidOf(cluster.id)}, ${uuidv7()}, 'web', '', now())`;
  const web = JSON.stringify({ port: (app.address() as AddressInfo).port, node: null, path: '/' });
  await sql`
    insert into runs (id, installation_id, cluster_id, organization_id, stack_version_id, operation, status, inputs,
      created_at, ended_at, web, access)
    values (${run}, ${installation}, ${uuidOf(cluster.id)}, ${uuidOf(organization.id)}, ${uuidv7()}, 'apply', 'APPLIED',
      '', now(), now(), ${web}::text::jsonb, ${access})`;
  return { id: `run_${run.replaceAll('-', '')}`, installation, cluster, organization };
}

/** Its host, when both gateways serve it. */
async function hostOf({ id }: Applied): Promise<string> {
  const { url } = await ask(here, `/v1/runs/${id}`);
  const { host } = new URL(url);
  await eventually(async () => (await get(there, host, '/')).status !== 404);
  return host;
}

/** A request that is on its way when its address stops is cut: then it is not known yet. */
const isGone = (which: Which, host: string): Promise<boolean> =>
  get(which, host, '/').then(
    ({ status }) => status === 404,
    () => false,
  );

it('serves a web address through each gateway, and stops it on both when its run is destroyed', async () => {
  const run = await applied('public');
  const host = await hostOf(run);
  expect(await get(here, host, '/a')).toMatchObject({ status: 200, text: 'says /a' });
  expect(await get(there, host, '/b')).toMatchObject({ status: 200, text: 'says /b' });
  const socket = await websocket(there, host, 'a=b');
  const ended = once(socket, 'close');
  await gateways.sql`
    insert into runs (id, installation_id, cluster_id, organization_id, stack_version_id, operation, status, inputs,
      created_at, place, lease_until)
    select ${uuidv7()}, installation_id, cluster_id, organization_id, stack_version_id, 'destroy', 'DESTROYING', '',
      now(), 'elsewhere', '2100-01-01' from runs where installation_id = ${run.installation}`;
  await eventually(() => isGone(here, host));
  await eventually(() => isGone(there, host));
  await ended;
});

it('applies a change on one gateway to the other before it is answered', async () => {
  const run = await applied('public');
  const host = await hostOf(run);
  const path = `/v1/clusters/${run.cluster.id}`;
  const socket = await websocket(there, host, 'a=b');
  const ended = once(socket, 'close');
  const owner = `/v1/organizations/${run.organization.id}`;
  await gateways.undisturbed(async () => {
    await ask(here, owner, { method: 'PATCH', body: { status: 'active' } });
    await ask(here, owner, { method: 'PATCH', body: { status: 'suspended' } });
    expect((await get(there, host, '/')).status).toBe(503);
    await ask(here, owner, { method: 'PATCH', body: { status: 'active' } });
    expect((await get(there, host, '/')).status).toBe(200);
  });
  await ended;
  await ask(here, path, { method: 'DELETE' });
  await eventually(() => isGone(there, host));
});

it('accepts a link of one gateway on the other, once in total, and ends it there with its key', async () => {
  const run = await applied('members');
  const host = await hostOf(run);
  const key = await gateways.key({}, run.organization.key);
  const opened = await ask(here, `/v1/runs/${run.id}/open`, { method: 'POST', key: key.secret });
  const { pathname, search } = new URL(opened.url);
  const uses = await Promise.all(
    [there, here, there, here].map((which) => get(which, host, pathname + search, { method: 'POST' })),
  );
  expect(uses.map(({ status }) => status).toSorted((a, b) => a - b)).toEqual([303, 403, 403, 403]);
  const cookie = uses.find(({ status }) => status === 303)?.cookie ?? '';
  for (const which of [here, there]) expect((await get(which, host, '/', { cookie })).status).toBe(200);
  const [mine, others] = [await websocket(here, host, cookie), await websocket(there, host, cookie)];
  const ended = Promise.all([once(mine, 'close'), once(others, 'close')]);
  await ask(here, `/v1/keys/${key.id}`, { method: 'DELETE', key: run.organization.key });
  await ended;
  for (const which of [here, there]) expect((await get(which, host, '/', { cookie })).status).toBe(401);
});
