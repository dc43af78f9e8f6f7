import { describe, expect, it } from 'vitest';
import { parseId } from '#base/id.ts';
import { type Got, idOf, ok, verified } from '#test/alerts/receiver.ts';
import { hourMs, status, url, useScene, type Webhook } from '#test/alerts/scene.ts';

const scene = useScene();
const { ask, deliver, listed, make, read, spent } = scene;

describe('an interrupted delivery', () => {
  it('is sent again under the same id when its gateway dies before recording the answer', async () => {
    const webhook = await make();
    const dying = scene.api.secondRooms().alerts;
    const arrived = Promise.withResolvers<void>();
    scene.receiver.answers = () => {
      arrived.resolve();
      return null;
    };
    await scene.api.alerts.raise(spent());
    await dying.deliver();
    await arrived.promise;
    // It writes nothing more.
    await dying.close(0);
    scene.receiver.answers = () => ok;
    await deliver();
    expect(scene.receiver.got).toHaveLength(1);
    scene.api.turnClock(50_000);
    await deliver();
    expect(scene.receiver.got).toHaveLength(2);
    expect(new Set(scene.receiver.got.map(idOf)).size).toBe(1);
    expect(await listed(webhook)).toMatchObject([{ status: 'delivered', attempts: 1 }]);
  });

  it('ignores the late answer of a gateway whose lease has expired', async () => {
    const webhook = await make();
    const frozen = scene.api.secondRooms({ webhooks: { outbound: scene.receiver.outbound, timeoutMs: 60_000 } }).alerts;
    const [arrived, late] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    scene.receiver.answers = async () => {
      arrived.resolve();
      await late.promise;
      return status(500);
    };
    await scene.api.alerts.raise(spent());
    await frozen.deliver();
    await arrived.promise;
    scene.receiver.answers = () => ok;
    scene.api.turnClock(2 * 60_000);
    await deliver();
    late.resolve();
    await frozen.settled();
    expect(await listed(webhook)).toMatchObject([{ status: 'delivered', attempts: 1, last_status: 204 }]);
    expect(await read(webhook)).toMatchObject({ failing_since: null });
  });

  it('is sent by one of two gateways, once', async () => {
    const webhook = await make();
    for (let raised = 0; raised < 40; raised += 1) await scene.api.alerts.raise(spent(String(raised)));
    const second = scene.api.secondRooms().alerts;
    await Promise.all([deliver(), deliver(second)]);
    expect(new Set(scene.receiver.got.map(idOf)).size).toBe(40);
    expect(scene.receiver.got).toHaveLength(40);
    expect((await listed(webhook)).every((one: { status: string }) => one.status === 'delivered')).toBe(true);
  });

  it('is not retried after its webhook is deleted or disabled', async () => {
    const [deleted, off] = [await make(), await make({ url: 'https://slow.example/off' })];
    scene.receiver.answers = () => status(503);
    await scene.api.alerts.raise(spent());
    const deleting = Promise.withResolvers<void>();
    scene.receiver.answers = async ({ host }) => {
      if (host === 'hooks.example') {
        await ask(`/v1/webhooks/${deleted.id}`, 'DELETE');
        deleting.resolve();
      }
      return status(503);
    };
    await deliver();
    await deleting.promise;
    await ask(`/v1/webhooks/${off.id}`, 'PATCH', { enabled: false });
    expect(await listed(off)).toMatchObject([{ status: 'failed', last_error: 'disabled', next_attempt_at: null }]);
    await scene.api.alerts.raise(spent());
    scene.api.turnClock(hourMs);
    await deliver();
    expect(scene.receiver.got).toHaveLength(2);
    expect(await scene.api.db.sql`select 1 from alert_deliveries where status = 'pending'`).toHaveLength(0);
    // Switched on again it gets what comes, and what somebody sends again.
    await ask(`/v1/webhooks/${off.id}`, 'PATCH', { enabled: true });
    await scene.api.alerts.raise(spent());
    await deliver();
    expect(scene.receiver.got).toHaveLength(3);
  });
});

describe('a stopping gateway', () => {
  it('starts no more deliveries, and waits for those in progress', async () => {
    const webhook = await make();
    const [arrived, answered] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    scene.receiver.answers = async () => {
      arrived.resolve();
      await answered.promise;
      return ok;
    };
    for (let raised = 0; raised < 40; raised += 1) await scene.api.alerts.raise(spent(String(raised)));
    const { outbound } = scene.receiver;
    const ending = scene.api.secondRooms({ webhooks: { outbound, timeoutMs: 60_000 } }).alerts;
    await ending.deliver();
    await arrived.promise;
    await expect.poll(() => scene.receiver.got.length).toBe(4);
    const ended = ending.close(60_000);
    answered.resolve();
    await ended;
    await ending.settled();
    expect(scene.receiver.got).toHaveLength(4);
    // Another one sends the others at once.
    await deliver();
    expect(new Set(scene.receiver.got.map(idOf)).size).toBe(40);
    const all: { status: string; attempts: number }[] = await listed(webhook);
    expect(all.every((one) => one.status === 'delivered' && one.attempts === 1)).toBe(true);
  });
});

describe('a webhook whose URL changes during a delivery', () => {
  it.each([410, 500])('is not marked as failing by status %i from the old URL', async (code) => {
    const webhook = await make({ url: 'https://slow.example/old' });
    scene.receiver.answers = async ({ host }) => {
      if (host === 'hooks.example') return ok;
      await ask(`/v1/webhooks/${webhook.id}`, 'PATCH', { url });
      return status(code);
    };
    await scene.api.alerts.raise(spent());
    await deliver();
    expect(await read(webhook)).toMatchObject({ enabled: true, disabled_reason: null, failing_since: null });
    expect(await listed(webhook)).toMatchObject([{ status: 'pending', last_status: code }]);
    scene.api.turnClock(hourMs);
    await deliver();
    expect(scene.receiver.got.map(({ host }) => host)).toEqual(['slow.example', 'hooks.example']);
    expect(await listed(webhook)).toMatchObject([{ status: 'delivered' }]);
  });
});

describe('a slow receiver', () => {
  it('in each of many organizations, with many waiting events, does not delay the events of others', async () => {
    const slow = await Promise.all(Array.from({ length: 11 }, (_, index) => scene.api.organization(`Slow ${index}`)));
    const waiting = Promise.withResolvers<void>();
    let first = true;
    scene.receiver.answers = async ({ host }) => {
      if (host === 'hooks.example') return ok;
      // One of them has time at last: its place is anybody's.
      if (first) {
        first = false;
        await waiting.promise;
        return ok;
      }
      return null;
    };
    for (const { key } of slow) {
      for (const path of ['a', 'b', 'c']) {
        const body = { url: `https://slow.example/${path}`, events: ['budget.exceeded'] };
        expect((await scene.api.ask('/v1/webhooks', { body, key })).status).toBe(201);
      }
    }
    const { outbound } = scene.receiver;
    const busy = scene.api.secondRooms({ webhooks: { outbound, timeoutMs: 60_000 } }).alerts;
    for (const { id } of slow) {
      const organizationId = parseId('org', id) ?? '';
      for (let raised = 0; raised < 10; raised += 1) await busy.raise({ ...spent(), organizationId });
    }
    await busy.deliver();
    await expect.poll(() => scene.receiver.got.length).toBe(100);
    await make();
    scene.api.turnClock(1000);
    await busy.raise(spent());
    await busy.deliver();
    waiting.resolve();
    await expect.poll(() => scene.receiver.got.length).toBeGreaterThan(100);
    expect(scene.receiver.got[100]?.host).toBe('hooks.example');
    await busy.close(0);
  });

  it('with a thousand events delays neither other organizations nor other webhooks of its own', async () => {
    const slow = await make({ url: 'https://slow.example/in', events: ['budget.exceeded'] });
    const quick = await make({ events: ['budget.reached'] });
    const other = await scene.api.organization('Other');
    const { body: others } = await scene.api.ask('/v1/webhooks', { body: { url }, key: other.key });
    const open = Promise.withResolvers<void>();
    let [atOnce, mostAtOnce] = [0, 0];
    scene.receiver.answers = async ({ host }) => {
      if (host !== 'slow.example') return ok;
      atOnce += 1;
      mostAtOnce = Math.max(mostAtOnce, atOnce);
      await open.promise;
      atOnce -= 1;
      return ok;
    };
    const impatient = scene.api.secondRooms({
      webhooks: { outbound: scene.receiver.outbound, timeoutMs: 120_000 },
    }).alerts;
    const names = Array.from({ length: 1000 }, (_, index) => String(index));
    for (const name of names) await impatient.raise(spent(name));
    for (let raised = 0; raised < 20; raised += 1) await impatient.raise({ ...spent(), type: 'budget.reached' });
    await impatient.raise({ ...spent(), organizationId: parseId('org', other.id) ?? '' });
    await impatient.deliver();
    const quickOnes = (): Got[] => scene.receiver.got.filter(({ host }) => host === 'hooks.example');
    await expect.poll(() => quickOnes().length).toBe(21);
    const isOf = ({ secret }: Webhook, got: Got): boolean => {
      try {
        return verified(secret, got) !== null;
      } catch {
        return false;
      }
    };
    expect(quickOnes().filter((got) => isOf(quick, got))).toHaveLength(20);
    expect(quickOnes().filter((got) => isOf(others, got))).toHaveLength(1);
    open.resolve();
    await impatient.settled();
    expect(mostAtOnce).toBe(4);
    const ofSlow = scene.receiver.got.filter((got) => got.host === 'slow.example');
    expect([ofSlow.length, new Set(ofSlow.map(idOf)).size]).toEqual([1000, 1000]);
    const [counted] = await scene.api.db.sql`
      select count(*)::int as delivered from alert_deliveries d join webhook_endpoints e on e.id = d.endpoint_id
      where e.id = ${parseId('wh', slow.id) ?? ''}::uuid and d.status = 'delivered' and d.attempts = 1`;
    expect(counted).toEqual({ delivered: 1000 });
  });
});

describe('the queue of one webhook', () => {
  it('is not scanned for each of the other webhooks', async () => {
    const webhook = await make({ url: 'https://slow.example/in', events: ['budget.exceeded'] });
    const { sql } = scene.api.db;
    const [id, waiting] = [parseId('wh', webhook.id) ?? '', 20_000];
    await sql`
      insert into webhook_endpoints (id, organization_id, url, description, enabled, secret_key_id, secret_sealed, created_at)
      select gen_random_uuid(), gen_random_uuid(), url, '', true, secret_key_id, secret_sealed, created_at
      from webhook_endpoints, generate_series(1, 500) where id = ${id}::uuid`;
    await sql`
      with events as (
        insert into alert_events (id, organization_id, type, data, created_at, addressed_at)
        select gen_random_uuid(), ${scene.organizationId()}::uuid, 'budget.exceeded', '{}', now(), now()
        from generate_series(1, ${waiting}) returning id, organization_id)
      insert into alert_deliveries (id, event_id, organization_id, endpoint_id, status, created_at, next_attempt_at)
      select gen_random_uuid(), id, organization_id, ${id}::uuid, 'pending', now(), now() - interval '1 minute' from events`;
    await sql`analyze alert_deliveries`;
    scene.receiver.answers = ({ host }) => (host === 'slow.example' ? null : ok);
    const read = async () => {
      const [row] = await sql`
        select seq_tup_read::int as rows, idx_scan::int as looks from pg_stat_user_tables
        where relname = 'alert_deliveries'`;
      return { rows: Number(row?.['rows']), looks: Number(row?.['looks']) };
    };
    const before = await read();
    const busy = scene.api.secondRooms({
      webhooks: { outbound: scene.receiver.outbound, timeoutMs: 60_000 },
    }).alerts;
    for (let looked = 0; looked < 10; looked += 1) await busy.deliver();
    await expect.poll(() => scene.receiver.got.length).toBe(4);
    // PostgreSQL writes down what it has counted a while later.
    await expect.poll(async () => (await read()).looks).toBeGreaterThan(before.looks + 500);
    expect((await read()).rows - before.rows).toBeLessThan(waiting * 100);
    await busy.close(0);
  });
});

describe('a webhook whose deliveries fail', () => {
  async function failFor(days: number): Promise<void> {
    for (let passed = 0; passed < days * 24; passed += 12) {
      await scene.api.alerts.raise(spent());
      await deliver();
      scene.api.turnClock(12 * hourMs);
    }
    await deliver();
  }

  it('is disabled after three days, and other webhooks get webhook.disabled', async () => {
    const webhook = await make();
    const watching = await make({ url: 'https://slow.example/watching', events: ['webhook.disabled'] });
    scene.receiver.answers = ({ host }) => (host === 'hooks.example' ? status(500) : ok);
    await failFor(2.5);
    expect(await read(webhook)).toMatchObject({ enabled: true, failing_since: expect.any(Number) });
    await failFor(1);
    expect(await read(webhook)).toMatchObject({ enabled: false, disabled_reason: 'failing' });
    const told = scene.receiver.got.filter(({ host }) => host === 'slow.example');
    expect(told.map((got) => verified(watching.secret, got))).toMatchObject([
      {
        type: 'webhook.disabled',
        data: { webhook_id: webhook.id, origin: 'https://hooks.example', reason: 'failing' },
      },
    ]);
    expect((await listed(webhook)).filter((one: { status: string }) => one.status === 'pending')).toEqual([]);
    const { body: audit } = await ask(`/v1/audit?target_id=${webhook.id}&action=webhook.disabled`);
    expect(audit.data).toMatchObject([
      { actor: { type: 'system' }, after: { enabled: false, disabled_reason: 'failing' } },
    ]);
    await ask(`/v1/webhooks/${webhook.id}`, 'PATCH', { enabled: true });
    expect(await read(webhook)).toMatchObject({ enabled: true, disabled_reason: null, failing_since: null });
  });

  it('stays enabled while some deliveries succeed', async () => {
    const webhook = await make();
    scene.receiver.answers = () => status(500);
    await failFor(2.5);
    scene.receiver.answers = () => ok;
    await scene.api.alerts.raise(spent());
    await deliver();
    scene.receiver.answers = () => status(500);
    await failFor(2.5);
    expect(await read(webhook)).toMatchObject({ enabled: true, disabled_reason: null });
  });

  it('is disabled at once when its receiver returns 410', async () => {
    const webhook = await make();
    scene.receiver.answers = () => status(410);
    await scene.api.alerts.raise(spent());
    await deliver();
    expect(await read(webhook)).toMatchObject({ enabled: false, disabled_reason: 'gone' });
    expect(await listed(webhook)).toMatchObject([{ status: 'failed', last_status: 410, last_error: 'disabled' }]);
  });
});
