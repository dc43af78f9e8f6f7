import { expect, it } from 'vitest';
import { systemClock } from '#base/clock.ts';
import { uuidv7 } from '#base/id.ts';
import { createLog } from '#base/log.ts';
import { createAudit, systemAuthor } from '#core/audit/audit.ts';
import { createProjectRateLimits, createRateLimitCache } from '#core/rate-limits/rate-limits.ts';
import { useWallet } from '#test/wallet/test-wallet.ts';

/** Changes of a limit of a project are in effect when they are answered. */

const bench = useWallet();

it('notifies the gateways when limits are set again after a notification failed', async () => {
  const { db } = bench;
  const cache = createRateLimitCache({ db, log: createLog('silent') });
  let mayTell = false;
  const limits = createProjectRateLimits({
    db,
    clock: systemClock,
    audit: createAudit({ clock: systemClock }),
    cache,
    async onChanged() {
      if (!mayTell) throw new Error('nobody could be told');
      await cache.load();
    },
  });
  const [organizationId, projectId] = [await bench.openWallet(), uuidv7()];
  const ref = { organizationId, projectId, model: 'chat' };
  const set = () => limits.set(ref, { requestsPerDay: 3 }, systemAuthor);
  await expect(set()).rejects.toThrow('nobody could be told');
  expect(cache.of(ref, 'chat')).toBeNull();
  mayTell = true;
  await set();
  expect(cache.of(ref, 'chat')?.limits).toEqual({ requestsPerMinute: null, tokensPerMinute: null, requestsPerDay: 3 });
});
