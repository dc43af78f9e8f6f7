import { describe, expect, it } from 'vitest';
import type { Alert } from '#core/alerts/alerts.ts';
import { status, useScene } from '#test/alerts/scene.ts';

const scene = useScene();
const { deliver, listed, make, organizationId, spent } = scene;

describe('an alert', () => {
  it('is rejected with an unknown type or with data that does not fit its type', async () => {
    const base = { organizationId: organizationId() };
    const wrong = [
      { ...base, type: 'wallet.lost', data: {} },
      { ...base, type: 'constructor', data: {} },
      { ...base, type: 'wallet.low_balance', data: { balance: 1 } },
      { ...base, type: 'wallet.low_balance', data: { balance: '1', alert_below: '2', currency: 'USD', more: 1 } },
    ];
    for (const alert of wrong) await expect(scene.api.alerts.raise(alert as Alert)).rejects.toThrow(/kind/);
    expect(await scene.api.db.sql`select 1 from alert_events where addressed_at is null`).toHaveLength(0);
  });

  it('is not sent when its transaction rolls back', async () => {
    const webhook = await make();
    const failing = scene.api.db.orm.transaction(async (tx) => {
      await scene.api.alerts.raiseIn(tx, spent());
      throw new Error('undone');
    });
    await expect(failing).rejects.toThrow('undone');
    await deliver();
    expect([scene.receiver.got, await listed(webhook)]).toEqual([[], []]);
  });
});

describe('a delivery', () => {
  it.each(['inside', 'both', 'mapped', 'nat64', 'compatible'])(
    'is not dialed to %s.example, whose address is not public',
    async (name) => {
      const webhook = await make({ url: `https://${name}.example/in` });
      await scene.api.alerts.raise(spent());
      await deliver();
      expect([scene.receiver.resolved, scene.receiver.dialed]).toEqual([[`${name}.example`], []]);
      expect(await listed(webhook)).toMatchObject([
        { status: 'pending', attempts: 1, last_status: null, last_error: 'not_public' },
      ]);
    },
  );

  it('resolves its host once per attempt, and dials the address that was checked', async () => {
    const webhook = await make();
    let asked = 0;
    Object.assign(scene.receiver.outbound, {
      resolve() {
        asked += 1;
        return Promise.resolve([asked === 1 ? '93.184.215.14' : '127.0.0.1']);
      },
    });
    await scene.api.alerts.raise(spent());
    await deliver();
    expect([asked, scene.receiver.dialed]).toEqual([1, ['93.184.215.14:443']]);
    expect(await listed(webhook)).toMatchObject([{ status: 'delivered' }]);
    // The next event asks anew, and finds what is not public.
    await scene.api.alerts.raise(spent());
    await deliver();
    expect([asked, scene.receiver.dialed.length]).toEqual([2, 1]);
  });

  it('does not follow redirects', async () => {
    const webhook = await make();
    scene.receiver.answers = () => status(302, { location: 'https://hooks.example/elsewhere' });
    await scene.api.alerts.raise(spent());
    await deliver();
    expect(scene.receiver.got.map(({ path }) => path)).toEqual(['/in']);
    expect(await listed(webhook)).toMatchObject([{ status: 'pending', last_status: 302, last_error: 'redirect' }]);
  });

  it('sends nothing to a server with a certificate for another name', async () => {
    scene.receiver.hosts['stolen.example'] = ['93.184.215.14'];
    const webhook = await make({ url: 'https://stolen.example/in' });
    await scene.api.alerts.raise(spent());
    await deliver();
    expect(scene.receiver.got).toEqual([]);
    expect(await listed(webhook)).toMatchObject([{ status: 'pending', last_error: 'unreachable' }]);
  });
});
