import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startGateway, type TestGateway } from '#test/gateway.ts';

let gateway: TestGateway;
beforeAll(async () => {
  gateway = await startGateway({ env: { HEADGATE_REPORT_SECONDS: '300' } });
});
afterAll(() => gateway.stop());

describe('a key whose reports wait for a lock', () => {
  it('is revoked at once by another request', async () => {
    const made = await gateway.request('/v1/keys', { body: { name: 'app', scope: 'inference' } });
    const { id } = (await made.json()) as { id: string };
    const lock = Promise.withResolvers<void>();
    const locked = Promise.withResolvers<void>();
    const locking = gateway.db.sql.begin(async (tx) => {
      await tx`lock table usage_daily, usage_hourly, usage_requests in access exclusive mode`;
      locked.resolve();
      await lock.promise;
    });
    await locked.promise;
    const reports = Array.from({ length: 8 }, () => gateway.request('/v1/usage/summary?group_by=key'));
    expect((await gateway.request(`/v1/keys/${id}`, { method: 'DELETE' })).status).toBe(200);
    lock.resolve();
    await locking;
    await Promise.all(reports);
  });
});
