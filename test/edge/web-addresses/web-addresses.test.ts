import { once } from 'node:events';
import { describe, expect, it } from 'vitest';
import { uuidv7 } from '#base/id.ts';
import { freePort } from '#test/free-port.ts';
import { useWebGateway } from '#test/web/web-gateway.ts';

/** Requests that the listener for web addresses rejects, forwards and ends. */

const web = useWebGateway({
  HEADGATE_BOOTSTRAP_KEY: 'an+operators.own/key~abcdefghijkl',
  HEADGATE_OWN_HOSTS: 'api.example.com',
  HEADGATE_BODY_STALL_SECONDS: '1',
});

describe('a cluster', () => {
  it.each(['api.example.com', 'example.com', 'apps.api.example.com'])(
    'is rejected with the public domain %s, which it would share with the gateway',
    async (domain) => {
      const body = { name: 'own', organization_id: web.organization.id, public_domain: domain };
      const made = await web.ask('/v1/clusters', { body });
      expect([made.status, made.body.error.details]).toEqual([
        400,
        [{ field: 'public_domain', message: expect.stringContaining('must not share a domain with the gateway') }],
      ]);
      const cluster = await web.makeCluster();
      const patched = await web.ask(`/v1/clusters/${cluster.id}`, { method: 'PATCH', body: { public_domain: domain } });
      expect([patched.status, patched.body.error.details[0].field]).toEqual([400, 'public_domain']);
    },
  );
});

describe('a web request', () => {
  it('is rejected for an unknown host, a loop, too many headers, and a body that stalls', async () => {
    const { host } = await web.exposed(await web.application(), {});
    for (const other of ['127.0.0.1', 'apps.test', `${host}.`, `x.${host}`, 'user@host', `${host},${host}`]) {
      const { status } = await web.get(other, '/');
      expect([other, status]).toEqual([other, other.includes('@') || other.includes(',') ? 400 : 404]);
    }
    expect((await web.get(host, '/', { 'x-headgate-hops': '4' })).status).toBe(508);
    expect((await web.get(host, '/', { 'x-headgate-hops': '3' })).status).toBe(200);
    expect(await web.raw(`GET / HTTP/1.1\r\nHost: ${host}\r\nX: ${'x'.repeat(33_000)}\r\n\r\n`)).toMatch(
      /^HTTP\/1.1 431 /,
    );
    const stopped = await web.raw(`POST / HTTP/1.1\r\nHost: ${host}\r\nContent-Length: 10\r\n\r\nabc`);
    expect(stopped).not.toContain('HTTP/1.1 200 OK\r\ncontent-length: 10');
    expect((await web.get(host.toUpperCase(), '/upper')).text).toBe('says /upper');
  });

  it('is rejected with a key of the gateway in its query or headers, also one that the operator chose', async () => {
    const { host } = await web.exposed(await web.application(), {});
    for (const key of [web.gateway.key, web.organization.key]) {
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
        expect([path, headers, (await web.get(host, path, headers)).status]).toEqual([path, headers, 400]);
      }
    }
    const other = {
      authorization: `Bearer ${web.gateway.key.toUpperCase()}`,
      cookie: 'token=its-own-and-32-characters-or-more',
    };
    expect((await web.get(host, '/', other)).status).toBe(200);
  });

  it('returns 502 when the application does not answer, or not in HTTP', async () => {
    const nobody = await web.exposed(await freePort(), {});
    expect(await web.get(nobody.host, '/')).toMatchObject({
      status: 502,
      text: expect.stringContaining('does not answer'),
    });
    expect(nobody.run.url_status).toBe('pending');
    const garbage = await web.exposed(await web.speaking('SSH-2.0-OpenSSH\r\n'), {});
    expect(await web.get(garbage.host, '/')).toMatchObject({
      status: 502,
      text: expect.stringContaining('invalid HTTP response'),
    });
    const twice = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\nok';
    expect((await web.get((await web.exposed(await web.speaking(twice), {})).host, '/')).status).toBe(502);
    const cut = await web.exposed(await web.speaking('HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf'), {});
    await expect(web.get(cut.host, '/')).rejects.toThrow(/aborted|hang up|reset/);
  });

  it('returns 503 above 256 connections of one web address, while others are served', async () => {
    const port = await web.application();
    const [{ host }, other] = [await web.exposed(port, {}), await web.exposed(port, {})];
    const open = await Promise.all(Array.from({ length: 256 }, () => web.websocket(host)));
    expect(new Set(open.map(({ status }) => status))).toEqual(new Set(['101']));
    expect((await web.websocket(host)).status).toBe('503');
    expect((await web.get(host, '/')).status).toBe(503);
    expect((await web.get(other.host, '/')).status).toBe(200);
    open[0]?.socket.destroy();
    await expect.poll(async () => (await web.get(host, '/')).status).toBe(200);
  });
});

describe('an exposure', () => {
  it('is in the first answer with status APPLIED, and is open only to members by then', async () => {
    const port = await web.application();
    for (let round = 0; round < 3; round += 1) {
      const { id } = await web.applied(port, {});
      const answer = await web.ask(`/v1/runs/run_${id.replaceAll('-', '')}`);
      expect(answer.body).toMatchObject({
        status: 'APPLIED',
        url: expect.stringContaining('https://'),
        url_status: expect.stringMatching(/^(pending|ready)$/),
      });
      const host = new URL(answer.body.url).host;
      expect((await web.get(host, '/')).status).toBe(200);
      const next = uuidv7();
      await web.gateway.db.sql.begin(async (tx) => {
        await tx`
          insert into runs (id, installation_id, cluster_id, organization_id, stack_version_id, operation, status,
            inputs, created_at, ended_at, web, access)
          select ${next}, installation_id, cluster_id, organization_id, stack_version_id, operation, status, inputs,
            now(), now(), web, 'members' from runs where id = ${id}`;
        await tx`update runs set status = 'SUPERSEDED' where id = ${id}`;
      });
      expect((await web.ask('/v1/runs')).body.data[0]).toMatchObject({ status: 'APPLIED', url: answer.body.url });
      expect((await web.get(host, '/')).status).not.toBe(200);
    }
  });

  it('limits the cookies of its application to its own host', async () => {
    const cookies =
      'Set-Cookie: a=1; Domain=apps.test; Path=/\r\nSet-Cookie: b=2;domain = .test ;Secure\r\nSet-Cookie: c=3; HttpOnly';
    const { host } = await web.exposed(
      await web.speaking(`HTTP/1.1 200 OK\r\n${cookies}\r\nContent-Length: 2\r\n\r\nok`),
      {},
    );
    const text = await web.raw(`GET / HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n\r\n`);
    const lines = text.split('\r\n').filter((line) => line.startsWith('Set-Cookie'));
    expect(lines).toEqual(['Set-Cookie: a=1; Path=/', 'Set-Cookie: b=2;Secure', 'Set-Cookie: c=3; HttpOnly']);
  });

  it('has its own name beside others of the same stack, and keeps the name', async () => {
    const cluster = await web.makeCluster();
    const port = await web.application();
    const first = await web.exposed(port, { cluster });
    const second = await web.exposed(port, { cluster, node: 'n0' });
    expect(first.host).toBe(`web--${cluster.name}.apps.test`);
    expect(second.host).toMatch(new RegExp(`^web--${cluster.name}-[0-9a-f]{6}\\.apps\\.test$`));
    expect((await web.ask(`/v1/runs/${second.run.id}`)).body.url).toBe(`https://${second.host}/`);
  });

  it('returns 404 when its cluster is archived, and its connections are closed', async () => {
    const { host, clusterId } = await web.exposed(await web.application(), {});
    const { socket } = await web.websocket(host);
    const closed = once(socket, 'close');
    expect((await web.ask(`/v1/clusters/${clusterId}`, { method: 'DELETE' })).status).toBe(204);
    await closed;
    expect((await web.get(host, '/')).status).toBe(404);
  });

  it('is closed while its node is released, since the machine may get another owner', async () => {
    const cluster = await web.makeCluster();
    const { host } = await web.exposed(await web.application(), { cluster });
    const tell = async (kind: string) =>
      (await web.ask(`/v1/clusters/${cluster.id}/nodes/n0/${kind}`, { method: 'POST', body: {} })).status;
    expect([await tell('allocate'), (await web.get(host, '/')).status]).toEqual([200, 200]);
    const { socket } = await web.websocket(host);
    const closed = once(socket, 'close');
    expect([await tell('release'), (await web.get(host, '/')).status]).toEqual([200, 502]);
    await closed;
    expect([await tell('allocate'), (await web.get(host, '/')).status]).toEqual([200, 200]);
  });

  it('closes open connections of strangers when its cluster requires members', async () => {
    const { host, clusterId, run } = await web.exposed(await web.application(), {});
    const { socket } = await web.websocket(host);
    const closed = once(socket, 'close');
    expect((await web.ask(`/v1/clusters/${clusterId}`, { method: 'PATCH', body: { access: 'members' } })).status).toBe(
      200,
    );
    await closed;
    expect((await web.get(host, '/')).status).toBe(401);
    const opened = await web.ask(`/v1/runs/${run.id}/open`, { method: 'POST', key: web.organization.key });
    const { pathname, search } = new URL(opened.body.url);
    expect((await web.get(host, pathname + search, {}, 'POST')).status).toBe(303);
    const [noted] = await web.gateway.db.sql`select action, after from audit_log where action = 'run.opened'`;
    expect(noted).toMatchObject({ action: 'run.opened', after: { host } });
  });
});
