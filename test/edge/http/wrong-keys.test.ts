import { describe, expect, it } from 'vitest';
import { type Body, errorOf, openOrganization, standinFile, useInference } from '#test/inference/inference-gateway.ts';

const wrongKeysPerMinute = 5;
const bench = useInference(() => ({
  engines: { chat: standinFile('chat') },
  env: { HEADGATE_WRONG_KEYS_PER_MINUTE: String(wrongKeysPerMinute), HEADGATE_TRUSTED_PROXIES: '127.0.0.0/8, ::1' },
}));

/** Every test guesses from an address of its own. */
const from = (address: string): Record<string, string> => ({ 'x-forwarded-for': address });

function mistype(secret: string): string {
  const at = secret.length - 10;
  return secret.slice(0, at) + (secret[at] === 'x' ? 'y' : 'x') + secret.slice(at + 1);
}

async function guess(path: string, address: string, key: string): Promise<Response> {
  const body = path.startsWith('/v1/chat') ? { model: 'chat', messages: [] } : undefined;
  return bench.gateway.request(path, { key, headers: from(address), ...(body === undefined ? {} : { body }) });
}

async function exhaust(address: string): Promise<void> {
  for (let count = 0; count < wrongKeysPerMinute; count += 1) {
    expect((await guess('/v1/models', address, `guess-${count}`)).status).toBe(401);
  }
}

describe('wrong keys from one address', () => {
  it.each(['/v1/models', '/v1/keys', '/v1/chat/completions', '/v1/wallet'])(
    'return 429 with Retry-After on %s',
    async (path) => {
      const address = `10.0.${path.length}.${path.charCodeAt(4)}`;
      await exhaust(address);
      const refused = await guess(path, address, mistype(bench.gateway.key));
      const wait = Number(refused.headers.get('retry-after'));
      expect(await errorOf(refused)).toMatchObject({
        status: 429,
        code: 'rate_limit_exceeded',
        type: 'rate_limit_error',
      });
      expect(wait).toBeGreaterThan(0);
      expect(wait).toBeLessThanOrEqual(60);
    },
  );

  it('count whether they are mistyped or unknown', async () => {
    const { key } = await openOrganization(bench.gateway, '1');
    const made: Body = await (await bench.gateway.request('/v1/keys', { key, body: { name: 'gone' } })).json();
    // A key that is well made and that nobody has: one of another gateway.
    await bench.gateway.db.sql`delete from api_keys where id = ${uuidOf(made.id)}`;
    for (let count = 0; count < wrongKeysPerMinute; count += 1) {
      expect((await guess('/v1/models', '10.1.0.1', made.secret)).status).toBe(401);
    }
    expect((await guess('/v1/models', '10.1.0.1', made.secret)).status).toBe(429);
  });

  it('delay no valid key from the same address, cached or not', async () => {
    const { key } = await openOrganization(bench.gateway, '1');
    const made: Body = await (await bench.gateway.request('/v1/keys', { key, body: { name: 'new' } })).json();
    await exhaust('10.2.0.1');
    expect((await guess('/v1/models', '10.2.0.1', 'one more')).status).toBe(401);
    expect((await guess('/v1/models', '10.2.0.1', 'one-more')).status).toBe(429);
    for (let count = 0; count < 20; count += 1) {
      const answers = await Promise.all([
        guess('/v1/models', '10.2.0.1', bench.gateway.key),
        guess('/v1/models', '10.2.0.1', made.secret),
        guess('/v1/models', '10.2.0.1', `guess-${count}`),
      ]);
      expect(answers.map(({ status }) => status)).toEqual([200, 200, 429]);
    }
  });

  it('do not affect other addresses', async () => {
    await exhaust('10.3.0.1');
    expect((await guess('/v1/models', '10.3.0.1', 'x')).status).toBe(429);
    expect((await guess('/v1/models', '10.3.0.2', 'x')).status).toBe(401);
  });

  it('count together for a whole IPv6 /64', async () => {
    for (let count = 0; count < wrongKeysPerMinute; count += 1) {
      expect((await guess('/v1/models', `2001:db8:1:2::${count + 1}`, 'x')).status).toBe(401);
    }
    expect((await guess('/v1/models', '2001:db8:1:2:ffff::1', 'x')).status).toBe(429);
    expect((await guess('/v1/models', '2001:db8:1:3::1', 'x')).status).toBe(401);
  });

  it('do not include a revoked key, which still gets 401', async () => {
    const { key } = await openOrganization(bench.gateway, '1');
    const made: Body = await (await bench.gateway.request('/v1/keys', { key, body: { name: 'revoked' } })).json();
    expect((await bench.gateway.request(`/v1/keys/${made.id}`, { key, method: 'DELETE' })).status).toBeLessThan(300);
    for (let count = 0; count < wrongKeysPerMinute * 3; count += 1) {
      expect((await guess('/v1/models', '10.4.0.1', made.secret)).status).toBe(401);
    }
  });

  it('do not include requests without a key', async () => {
    for (let count = 0; count < wrongKeysPerMinute * 2; count += 1) {
      const answer = await bench.gateway.request('/v1/models', { key: null, headers: from('10.5.0.1') });
      expect(answer.status).toBe(401);
    }
    expect((await guess('/v1/models', '10.5.0.1', 'x')).status).toBe(401);
  });
});

function uuidOf(id: string): string {
  const hex = id.slice(id.indexOf('_') + 1);
  return hex.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5');
}
