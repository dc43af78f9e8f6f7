import { randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { createTestDatabase } from '#test/database.ts';
import { startGateway, type TestGateway } from '#test/gateway.ts';

type Json = ReturnType<JSON['parse']>;

const said = ({ logLines }: TestGateway, text: string): Json[] =>
  logLines.map((line) => JSON.parse(line)).filter(({ msg }) => msg === text);
const cannot =
  'this gateway cannot encrypt secrets (access identities, inputs of runs, webhooks) and starts no runs; restore the platform key';

describe('a gateway start', () => {
  it('reports an unknown platform key and serves, and encrypts all secrets again with the old key after a new one', async () => {
    const database = await createTestDatabase();
    const key = `sk-hg-${'k'.repeat(40)}`;
    const start = (env: Readonly<Record<string, string>>) =>
      startGateway({ databaseUrl: database.url, env: { HEADGATE_BOOTSTRAP_KEY: key, ...env } });
    const ask = async (gateway: TestGateway, path: string, body?: object): Promise<{ status: number; body: Json }> => {
      const options = { key, ...(body !== undefined && { method: 'POST', body }) };
      const response = await gateway.request(path, options);
      return { status: response.status, body: await response.json() };
    };

    let gateway = await start({});
    const { body: organizations } = await ask(gateway, '/v1/organizations');
    const made = await ask(gateway, '/v1/clusters', { name: 'one', organization_id: organizations.data[0].id });
    expect([made.status, said(gateway, cannot)]).toEqual([201, []]);
    const path = `/v1/clusters/${made.body.id}`;
    const old = readFileSync(join(gateway.dataDir, 'platform.key'), 'utf8').trim();
    await gateway.stop();

    const fresh = randomBytes(32).toString('base64');
    gateway = await start({ HEADGATE_PLATFORM_KEY: fresh });
    expect(said(gateway, cannot)).toMatchObject([
      { trouble: expect.stringContaining(made.body.access_identity.encrypted_with) },
    ]);
    expect(gateway.logLines.join('')).not.toContain(fresh);
    expect((await ask(gateway, path)).body).toEqual(made.body);
    expect((await ask(gateway, `${path}/access-identity/rotate`, {})).status).toBe(503);
    await gateway.stop();

    gateway = await start({ HEADGATE_PLATFORM_KEY: `${fresh},${old}` });
    const { body } = await ask(gateway, path);
    expect([said(gateway, cannot), body.access_identity.fingerprint]).toEqual([
      [],
      made.body.access_identity.fingerprint,
    ]);
    expect(body.access_identity.encrypted_with).not.toBe(made.body.access_identity.encrypted_with);
    await gateway.stop();
    await database.drop();
  });
});
