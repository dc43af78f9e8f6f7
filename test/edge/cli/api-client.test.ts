import { describe, expect, it } from 'vitest';
import { parseClientConfig } from '#base/config.ts';
import { createApiClient } from '#edge/cli/api-client.ts';
import { useApi } from '../api/test-api.ts';

const api = useApi();
const client = () => createApiClient(parseClientConfig({ HEADGATE_URL: api().url, HEADGATE_API_KEY: api().admin }));

interface Key {
  readonly id: string;
  readonly name: string;
  readonly status: string;
}

describe('the client of the commands', () => {
  it('says what the gateway refuses of a body', async () => {
    await expect(client().call('POST', '/v1/keys', { body: { name: '' } })).rejects.toThrow('name: must not be empty');
    await expect(client().call('PATCH', '/v1/keys/none', { body: { name: 'x' } })).rejects.toThrow(
      'There is no such API key',
    );
    await expect(client().call('PUT', '/v1/keys', { body: {} })).rejects.toThrow(
      'PUT is not answered here; allowed: GET, HEAD',
    );
    await expect(client().call('POST', '/v1/keys')).rejects.toThrow('body: is missing: send a JSON object');
  });

  it('asks with every method, and sends JSON with those that take it', async () => {
    const made = (await client().call('POST', '/v1/keys', { body: { name: 'größe' } })) as Key;
    expect(made.name).toBe('größe');
    const path = `/v1/keys/${made.id}`;
    expect(await client().call('PATCH', path, { body: { name: 'x' } })).toMatchObject({ id: made.id, name: 'x' });
    expect(await client().call('DELETE', path)).toMatchObject({ id: made.id, status: 'revoked' });
    expect(await client().call('GET', path)).toMatchObject({ name: 'x', status: 'revoked' });
  });
});
