import { describe, expect, it } from 'vitest';
import { useApi } from '#test/api/test-api.ts';

const api = useApi();

describe('a streamed API response', () => {
  it.each([
    ['/v1/billing/costs?month=2026-03', 'application/json'],
    ['/v1/billing/costs.csv?month=2026-03', 'text/csv'],
    ['/v1/usage/requests', 'application/x-ndjson'],
    ['/v1/usage/requests', 'text/csv'],
    ['/v1/wallet/statements/2026-01', 'application/json'],
    ['/v1/wallet/statements/2026-01', 'text/csv'],
  ])('has the request id in its headers: %s as %s', async (path, accept) => {
    const { status, headers } = await api().ask(path, { headers: { accept } });
    expect([status, headers.get('content-type')?.split(';')[0]]).toEqual([200, accept]);
    expect(headers.get('x-request-id')).toMatch(/^[0-9a-f-]{36}$/);
  });
});
