import { describe, expect, it } from 'vitest';
import { parseId } from '#base/id.ts';
import { type Got, idOf, ok, verified } from './receiver.ts';
import { hourMs, status, url, useScene, type Webhook } from './scene.ts';

const scene = useScene();
const { ask, deliver, listed, make, read, spent } = scene;

describe('what goes wrong in the middle', () => {
  it('of a gateway that dies between sending and noting: another one sends it again, under the same id', async () => {
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

  it('of a gateway that is overtaken: what it knew late changes nothing', async () => {
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

  it('is shared by gateways: each event is sent by one of them', async () => {
    const webhook = await make();
    for (let raised = 0; raised < 40; raised += 1) await scene.api.alerts.raise(spent(String(raised)));
    const second = scene.api.secondRooms().alerts;
    await Promise.all([deliver(), deliver(second)]);
    expect(new Set(scene.receiver.got.map(idOf)).size).toBe(40);
    expect(scene.receiver.got).toHaveLength(40);
    expect((await listed(webhook)).every((one: { status: string }) => one.status === 'delivered')).toBe(true);
  });

  it('of a webhook that is deleted or switched off: nothing more is sent', async () => {
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

describe('a slow receiver', () => {
  it('with a thousand events holds up neither others nor the other webhooks of its organization', async () => {
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

describe('a webhook where nothing arrives', () => {
  async function failFor(days: number): Promise<void> {
    for (let passed = 0; passed < days * 24; passed += 12) {
      await scene.api.alerts.raise(spent());
      await deliver();
      scene.api.turnClock(12 * hourMs);
    }
    await deliver();
  }

  it('is switched off after three days, which is told to the others', async () => {
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

  it('is not while something arrives now and then', async () => {
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

  it('is switched off at once where its receiver says that it is gone', async () => {
    const webhook = await make();
    scene.receiver.answers = () => status(410);
    await scene.api.alerts.raise(spent());
    await deliver();
    expect(await read(webhook)).toMatchObject({ enabled: false, disabled_reason: 'gone' });
    expect(await listed(webhook)).toMatchObject([{ status: 'failed', last_status: 410, last_error: 'disabled' }]);
  });
});
