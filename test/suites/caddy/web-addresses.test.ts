import { describe, expect, it } from 'vitest';
import type { Body } from '#test/inference/inference-gateway.ts';
import { Relay } from './relay.ts';
import { closed, echo, opened, useWebPlace, webStack } from './web-place.ts';

/** Web addresses of runs, applied by Terraform, through a real Caddy that gets its certificates on demand. */

const newPlace = useWebPlace();

describe('an invalid web address', () => {
  it('gets no certificate before it exists, and none after its run is destroyed', async () => {
    const { caddy, gateway, cluster, application, ready } = await newPlace();
    const host = `web--${cluster.name}.apps.test`;
    await expect(caddy.tls(host)).rejects.toThrow('alert');
    await expect(caddy.tls('apps.test')).rejects.toThrow('alert');
    const { port } = await application();
    const run = await ready('web', { port });
    expect(run.url).toBe(`https://${host}/`);
    (await caddy.tls(host)).destroy();
    await expect(caddy.tls(`other.${host}`)).rejects.toThrow('alert');
    await expect(caddy.tls(`web--${cluster.name}.other.test`)).rejects.toThrow('alert');

    await gateway.made(`/v1/runs/${run.id}/destroy`);
    expect((await gateway.run(run.id)).url).toBeNull();
    const gone = await caddy.text(run.url);
    expect([gone.status, gone.text]).toEqual([404, expect.stringContaining('no application at this address')]);
  });

  /** core/runs/web-port.quick.test.ts has all values that are rejected. */
  it('is rejected for an invalid port or node, with the reason on the run', async () => {
    const { place, cluster, applied } = await newPlace();
    const port = place.server.port;
    const cases: readonly [object, string][] = [
      [{ port: 8080.5, node: 'n0' }, 'web_port must be a whole number'],
      [{ port: 8080, node: ['n0'] }, 'web_node must be the name of a node'],
      [{ port, node: 'n0' }, "web_port is the port of the node's SSH server"],
    ];
    for (const [web, why] of cases) {
      const run = await applied('web', web);
      expect([web, run.url, run.url_problem]).toEqual([web, null, expect.stringContaining(why)]);
    }
    const exposures = await place.sql`
      select 1 from exposures join runs using (installation_id)
      where cluster_id = ${cluster.id.replace('cluster_', '')}::uuid`;
    expect(exposures).toEqual([]);
  });
});

describe('a web address', () => {
  it('leads to the port of the node, is shown on the run, and keeps its name after another apply', async () => {
    const { caddy, application, ready, applied, readyOf } = await newPlace();
    const first = await application('first');
    const run = await ready('web', { port: first.port });
    const answer = await caddy.get(run.url, '/a/b?c=d', {
      method: 'POST',
      body: 'said',
      headers: {
        'x-forwarded-for': '1.2.3.4',
        'x-forwarded-host': 'evil.test',
        forwarded: 'for=1.2.3.4',
        cookie: 'a=b',
      },
    });
    const seen = (await answer.json()) as Body;
    expect(seen).toMatchObject({ name: 'first', method: 'POST', url: '/a/b?c=d', body: 'said' });
    const { host } = caddy.at(run.url);
    expect(seen.headers).toMatchObject({
      host,
      cookie: 'a=b',
      'x-forwarded-host': host,
      'x-forwarded-proto': 'https',
      'x-forwarded-for': '127.0.0.1',
    });
    expect(seen.headers.forwarded).toBeUndefined();

    const second = await application('second');
    const again = await applied('web', { port: second.port });
    expect((await readyOf(again.id)).url).toBe(run.url);
    expect((await (await caddy.get(run.url)).json()) as Body).toMatchObject({ name: 'second' });
  });

  it('keeps websockets and event streams open during other runs, and closes its own on destroy', async () => {
    const { caddy, gateway, application, ready } = await newPlace();
    await gateway.upload('other', webStack);
    const [mine, others] = [await application('mine'), await application('other')];
    const run = await ready('web', { port: mine.port });
    const socket = caddy.websocket(run.url, '/socket');
    await opened(socket);
    const events = await caddy.get(run.url, '/events');
    const reader = events.body?.getReader();
    const next = async (): Promise<string> => Buffer.from((await reader?.read())?.value ?? '').toString();
    expect(await next()).toContain('data: first');

    const other = await ready('other', { port: others.port });
    expect((await caddy.text(other.url)).status).toBe(200);
    const destroying = await gateway.made(`/v1/runs/${other.id}/destroy`);
    expect((await caddy.text(other.url)).status).toBe(404);
    await gateway.becomes(destroying.id, 'DESTROYED');
    expect(await echo(socket, 'still here')).toBe('still here');
    expect(await next()).toContain('data: more');
    expect(mine.connections).toBe(2);

    const ended = closed(socket);
    await gateway.made(`/v1/runs/${run.id}/destroy`);
    await ended;
    await expect(restOf(next)).rejects.toThrow(/terminated|ended/);
    await expect.poll(() => mine.connections).toBe(0);
    await expect(opened(caddy.websocket(run.url, '/socket'))).rejects.toThrow('the websocket was');
  });

  it('uses SSH when the port is open on the node only', async () => {
    const { caddy, gateway, place, organization, application, readyOf } = await newPlace();
    const relay = await Relay.start('127.0.0.2', place.server.port);
    const node = { name: 'far', address: '127.0.0.2', ssh_port: relay.port, hardware_profile: 'plain' };
    const { user: ssh_user, hostKey: host_key } = place.server;
    const cluster = await gateway.made('/v1/clusters', {
      name: 'far',
      organization_id: organization.id,
      public_domain: 'apps.test',
      nodes: [{ ...node, ssh_user, host_key }],
    });
    place.server.authorize(cluster.access_identity.public_key);
    const app = await application('closed');
    const begun = await gateway.apply('web', cluster.id, { web: JSON.stringify({ port: app.port }) });
    const run = await readyOf((await gateway.becomes(begun.id, 'APPLIED')).id);
    expect(run.url).toBe('https://web--far.apps.test/');
    expect(JSON.parse((await caddy.text(run.url, '/x')).text)).toMatchObject({ name: 'closed', url: '/x' });
    const socket = caddy.websocket(run.url, '/socket');
    await opened(socket);
    expect(await echo(socket, 'through')).toBe('through');
    expect(relay.connections).toBe(1);
    // A host with another key is none that anybody knows.
    const other = cluster.access_identity.public_key;
    const ended = closed(socket);
    await gateway.ask(`/v1/clusters/${cluster.id}/nodes/far`, { method: 'PATCH', body: { host_key: other } });
    await ended;
    await expect.poll(async () => (await caddy.text(run.url)).status).toBe(502);
    await relay.close();
  });
});

/** @throws Error at the end, however it comes */
async function restOf(next: () => Promise<string>): Promise<void> {
  while ((await next()) !== '') continue;
  throw new Error('it has ended');
}
