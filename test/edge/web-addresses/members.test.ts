import { once } from 'node:events';
import { describe, expect, it } from 'vitest';
import { type Exposed, useWebGateway } from '#test/web/web-gateway.ts';

/** Addresses for members: links that only a person uses, and cookies that are worth what their key is. */

const web = useWebGateway();

const forMembers = async (): Promise<Exposed> => web.exposed(await web.application(), { access: 'members' });

/** A key of the organization's that opens addresses. */
async function makeKey(more: object = {}): Promise<{ id: string; secret: string }> {
  const { body } = await web.ask('/v1/keys', { body: { name: 'app', ...more }, key: web.organization.key });
  return body;
}

describe('an access link', () => {
  it('is rejected for a form of another site, and for methods other than reading and using it', async () => {
    const { host, run } = await forMembers();
    const link = await web.link(run.id, web.organization.key);
    const foreign: readonly Record<string, string>[] = [
      { origin: 'https://evil.apps.test' },
      { origin: 'null' },
      { origin: `https://${host}`, 'sec-fetch-site': 'same-site', 'sec-fetch-mode': 'navigate' },
      { 'sec-fetch-site': 'cross-site', 'sec-fetch-mode': 'navigate' },
    ];
    for (const headers of foreign) {
      expect([headers, (await web.get(host, link, headers, 'POST')).status]).toEqual([headers, 403]);
    }
    for (const method of ['PUT', 'DELETE', 'OPTIONS']) {
      const { status, headers } = await web.get(host, link, {}, method);
      expect([method, status, headers['allow']]).toEqual([method, 405, 'GET, HEAD, POST']);
    }
    // None of them has used it.
    const own = { origin: `https://${host}`, 'sec-fetch-site': 'same-origin', 'sec-fetch-mode': 'navigate' };
    expect((await web.get(host, link, own, 'POST')).status).toBe(303);
    expect((await web.get(host, link, own, 'POST')).status).toBe(403);
  });
});

describe('an access link that a program previews', () => {
  it('is not used up by GET and HEAD', async () => {
    const { host, run } = await forMembers();
    const link = await web.link(run.id, web.organization.key);
    for (const [method, accept] of [
      ['HEAD', '*/*'],
      ['GET', '*/*'],
      ['GET', 'text/html'],
    ] as const) {
      const shown = await web.get(host, link, { accept }, method);
      expect([method, shown.status, shown.headers['set-cookie']]).toEqual([method, 200, undefined]);
      expect(shown.text.includes('<form method="post">')).toBe(accept === 'text/html');
      expect(shown.text).not.toContain(link.split('link=')[1]);
      // With "no-referrer" a browser would say of its form that it came from nowhere.
      expect(shown.headers['referrer-policy']).toBe('strict-origin');
      expect(shown.headers['content-security-policy']).toMatch(
        /^default-src 'none'; style-src 'sha256-[^']+'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'$/,
      );
    }
    const entered = await web.get(host, link, {}, 'POST');
    expect([entered.status, entered.headers['location'], entered.headers['referrer-policy']]).toEqual([
      303,
      '/',
      'no-referrer',
    ]);
    const cookie = entered.headers['set-cookie']?.[0]?.split(';')[0] ?? '';
    expect((await web.get(host, '/in', { cookie })).text).toBe('says /in');
  });
});

describe('access by a key', () => {
  it('ends when the key expires or is revoked, even if its cookie lasts longer', async () => {
    const address = await forMembers();
    const { host } = address;
    const atSeconds = Math.ceil(Date.now() / 1000) + 3;
    const [expiring, lasting] = [await makeKey({ expires_at: atSeconds }), await makeKey()];
    const cookies = [await web.enter(address, expiring.secret), await web.enter(address, lasting.secret)] as const;
    const [first, second] = await Promise.all(cookies.map((cookie) => web.websocket(host, { cookie })));
    expect([first?.status, second?.status]).toEqual(['101', '101']);
    const ended = [first, second].map((one) => (one === undefined ? null : once(one.socket, 'close')));
    await ended[0];
    expect(Date.now()).toBeGreaterThanOrEqual(atSeconds * 1000 - 100);
    const statuses = async (): Promise<number[]> =>
      Promise.all(cookies.map(async (cookie) => (await web.get(host, '/', { cookie })).status));
    expect([await statuses(), second?.socket.destroyed]).toEqual([[401, 200], false]);
    const revoked = await web.ask(`/v1/keys/${lasting.id}`, { method: 'DELETE', key: web.organization.key });
    expect(revoked.status).toBeLessThan(300);
    await ended[1];
    expect(await statuses()).toEqual([401, 401]);
  });
});
