import { execFile } from 'node:child_process';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { createServer as createTlsServer } from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, it } from 'vitest';
import { parseClientConfig } from '#base/config/read-config.ts';
import { createApiClient } from '#edge/cli/shell/api-client.ts';
import { useApi } from '#test/api/test-api.ts';

const run = promisify(execFile);
const api = useApi();
const client = () => createApiClient(parseClientConfig({ HEADGATE_URL: api().url, HEADGATE_API_KEY: api().admin }));

interface Key {
  readonly id: string;
  readonly name: string;
  readonly status: string;
}

/** A server whose certificate is its own word. */
async function useTls(url: (port: number) => string): Promise<{ url: string; close: () => void }> {
  const folder = await mkdtemp(join(tmpdir(), 'hg-tls-'));
  const [key, cert] = [join(folder, 'key.pem'), join(folder, 'cert.pem')];
  const request = ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '2'];
  await run('openssl', [...request, '-subj', '/CN=elsewhere', '-keyout', key, '-out', cert]);
  const server = createTlsServer({ key: await readFile(key), cert: await readFile(cert) }, (_, response) => {
    response.end('{}');
  }).listen(0, '127.0.0.1');
  await new Promise((resolve) => server.once('listening', resolve));
  await rm(folder, { recursive: true });
  const address = server.address();
  return { url: url(typeof address === 'object' ? (address?.port ?? 0) : 0), close: () => void server.close() };
}

describe("the CLI's API client without a reachable gateway", () => {
  const ask = (url: string) =>
    createApiClient(parseClientConfig({ HEADGATE_URL: url, HEADGATE_API_KEY: 'k' })).call('GET', '/v1/models');

  it('names an unknown host and a wrong URL scheme', async () => {
    await expect(ask('http://gateway.invalid')).rejects.toThrow(
      /^http:\/\/gateway\.invalid is unreachable \((?:ENOTFOUND|EAI_AGAIN)\): the host gateway\.invalid has no known address/,
    );
    await expect(ask(api().url.replace('http:', 'https:'))).rejects.toThrow('try http:// instead of https://.');
    const tls = await useTls((port) => `http://127.0.0.1:${port}`);
    await expect(ask(tls.url)).rejects.toThrow('try https:// instead of http://.');
    tls.close();
  });

  it('names an untrusted certificate and how to trust it', async () => {
    const tls = await useTls((port) => `https://127.0.0.1:${port}`);
    await expect(ask(tls.url)).rejects.toThrow(
      '(DEPTH_ZERO_SELF_SIGNED_CERT): this machine does not trust its certificate',
    );
    await expect(ask(tls.url)).rejects.toThrow('NODE_EXTRA_CA_CERTS=FILE.pem');
    tls.close();
  });
});

describe("the CLI's API client", () => {
  it("shows the gateway's error for an invalid body", async () => {
    await expect(client().call('POST', '/v1/keys', { body: { name: '' } })).rejects.toThrow('name: must not be empty');
    await expect(client().call('PATCH', '/v1/keys/none', { body: { name: 'x' } })).rejects.toThrow(
      'There is no such API key',
    );
    await expect(client().call('PUT', '/v1/keys', { body: {} })).rejects.toThrow(
      'Method PUT is not allowed here. Use GET, HEAD',
    );
    await expect(client().call('POST', '/v1/keys')).rejects.toThrow('body: is missing; send a JSON object');
  });

  it('sends every method, with JSON for those with a body', async () => {
    const made = (await client().call('POST', '/v1/keys', { body: { name: 'größe' } })) as Key;
    expect(made.name).toBe('größe');
    const path = `/v1/keys/${made.id}`;
    expect(await client().call('PATCH', path, { body: { name: 'x' } })).toMatchObject({ id: made.id, name: 'x' });
    expect(await client().call('DELETE', path)).toMatchObject({ id: made.id, status: 'revoked' });
    expect(await client().call('GET', path)).toMatchObject({ name: 'x', status: 'revoked' });
  });
});
