import { describe, expect, it } from 'vitest';
import { type Got, idOf, ok, verified } from '#test/alerts/receiver.ts';
import { budgetData, hourMs, status, useScene, type Webhook } from '#test/alerts/scene.ts';

const scene = useScene();
const { ask, deliver, listed, make, spent } = scene;

describe('an event', () => {
  it('is sent only to subscribed webhooks of its organization, with a Standard Webhooks signature', async () => {
    const other = await scene.api.organization('Other');
    await scene.api.ask('/v1/webhooks', { body: { url: 'https://slow.example/other' }, key: other.key });
    const webhook = await make();
    const deaf = await make({ url: 'https://hooks.example/deaf', events: ['wallet.low_balance'] });
    await scene.api.alerts.raise(spent());
    await deliver();
    const [got, ...more] = scene.receiver.got;
    expect(more).toEqual([]);
    if (got === undefined) throw new Error('nothing came');
    const { 'webhook-timestamp': timestamp, ...headers } = got.headers;
    expect(Number(timestamp)).toBeCloseTo(Date.now() / 1000, -2);
    expect(headers).toEqual({
      host: 'hooks.example',
      'user-agent': 'headgate',
      accept: '*/*',
      connection: 'close',
      'content-type': 'application/json',
      'content-length': String(got.body.length),
      'webhook-id': expect.stringMatching(/^evt_[0-9a-f]{32}$/),
      'webhook-signature': expect.stringMatching(/^v1,[A-Za-z0-9+/]{43}=$/),
    });
    expect(verified(webhook.secret, got)).toEqual({
      type: 'budget.exceeded',
      timestamp: expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/),
      organization_id: scene.tenant.id,
      data: budgetData('Team'),
    });
    expect(() => verified(deaf.secret, got)).toThrow('No matching signature');
    expect(() => verified(webhook.secret, { ...got, body: `${got.body} ` })).toThrow('No matching signature');
    expect(await listed(webhook)).toEqual([
      {
        id: expect.stringMatching(/^dlv_/),
        object: 'webhook.delivery',
        event_id: idOf(got),
        type: 'budget.exceeded',
        data: budgetData('Team'),
        status: 'delivered',
        attempts: 1,
        last_status: 204,
        last_error: null,
        last_attempt_at: expect.any(Number),
        next_attempt_at: null,
        created_at: expect.any(Number),
      },
    ]);
    expect(await listed(deaf)).toEqual([]);
  });

  it('is sent once per deduplication name', async () => {
    await make();
    for (const name of ['a', 'b', 'a']) await scene.api.alerts.raise({ ...spent(name), once: name });
    await deliver();
    expect(scene.receiver.got).toHaveLength(2);
  });

  it('is retried ten times for about a day with growing waits, the same id and a new signature', async () => {
    const webhook = await make();
    scene.receiver.answers = () => status(500);
    await scene.api.alerts.raise(spent());
    const waits: number[] = [];
    for (;;) {
      await deliver();
      const [delivery] = await listed(webhook);
      expect(delivery).toMatchObject({ attempts: waits.length + 1, last_status: 500, last_error: 'status' });
      if (delivery.status === 'failed') break;
      waits.push(delivery.next_attempt_at - delivery.last_attempt_at);
      // A second before it is due nothing is sent.
      const before = scene.receiver.got.length;
      scene.api.turnClock((waits.at(-1) ?? 0) * 1000 - 2000);
      await deliver();
      expect(scene.receiver.got).toHaveLength(before);
      scene.api.turnClock(3000);
    }
    expect(waits).toHaveLength(10);
    const planned = [5, 20, 80, 320, 1280, 5120, 20_480, 21_600, 21_600, 21_600];
    for (const [index, wait] of waits.entries()) {
      const plan = planned[index] ?? 0;
      expect([wait >= plan * 0.8 - 1, wait <= plan * 1.2 + 1]).toEqual([true, true]);
    }
    expect(new Set(scene.receiver.got.map(idOf)).size).toBe(1);
    expect(new Set(scene.receiver.got.map(({ body }) => body)).size).toBe(1);
    expect(new Set(scene.receiver.got.map(({ headers }) => headers['webhook-timestamp'])).size).toBe(11);
    for (const got of scene.receiver.got) verified(webhook.secret, got);
    scene.api.turnClock(48 * hourMs);
    await deliver();
    expect(scene.receiver.got).toHaveLength(11);
  });

  it('waits as long as Retry-After asks for', async () => {
    const webhook = await make();
    scene.receiver.answers = () => status(429, { 'retry-after': '600' });
    await scene.api.alerts.raise(spent());
    await deliver();
    const [delivery] = await listed(webhook);
    expect(delivery.next_attempt_at - delivery.last_attempt_at).toBe(600);
  });

  it('without an answer is recorded as a timeout', async () => {
    const webhook = await make();
    scene.receiver.answers = () => null;
    await scene.api.alerts.raise(spent());
    await deliver();
    expect(await listed(webhook)).toMatchObject([{ status: 'pending', last_status: null, last_error: 'timeout' }]);
  });

  it('is sent again on replay, delivered or not', async () => {
    const webhook = await make();
    scene.receiver.answers = () => status(404);
    await scene.api.alerts.raise(spent());
    for (let tries = 0; tries < 11; tries += 1) {
      await deliver();
      scene.api.turnClock(8 * hourMs);
    }
    const [failed] = await listed(webhook);
    expect(failed).toMatchObject({ status: 'failed', attempts: 11 });
    scene.receiver.answers = () => ok;
    const replay = (): ReturnType<typeof ask> =>
      ask(`/v1/webhooks/${webhook.id}/deliveries/${failed.id}/replay`, 'POST');
    for (const attempts of [12, 13]) {
      const answer = await replay();
      expect([answer.status, answer.body]).toMatchObject([202, { id: failed.id, status: 'pending' }]);
      await deliver();
      expect(await listed(webhook)).toMatchObject([
        { status: 'delivered', attempts, last_status: 204, last_error: null },
      ]);
    }
    expect(new Set(scene.receiver.got.map(idOf))).toEqual(new Set([failed.event_id]));
    expect((await ask(`/v1/webhooks/${webhook.id}/deliveries/dlv_${'0'.repeat(32)}/replay`, 'POST')).status).toBe(404);
    const second = await make();
    expect((await ask(`/v1/webhooks/${second.id}/deliveries/${failed.id}/replay`, 'POST')).status).toBe(404);
  });

  it('of type webhook.test is sent once, to its webhook only', async () => {
    const [webhook] = [await make({ events: ['budget.reached'] }), await make()];
    scene.receiver.answers = () => status(500);
    await ask(`/v1/webhooks/${webhook.id}/test`, 'POST');
    await deliver();
    scene.api.turnClock(hourMs);
    await deliver();
    expect(scene.receiver.got).toHaveLength(1);
    expect(verified(webhook.secret, scene.receiver.got[0] as Got)).toMatchObject({
      type: 'webhook.test',
      data: { webhook_id: webhook.id, origin: 'https://hooks.example' },
    });
    expect(await listed(webhook)).toMatchObject([{ status: 'failed', attempts: 1, type: 'webhook.test' }]);
  });
});

describe('a rotated webhook secret', () => {
  it('signs beside the new one until its grace period is over', async () => {
    const webhook = await make();
    const rotate = async (grace_seconds: number): Promise<Webhook> =>
      (await ask(`/v1/webhooks/${webhook.id}/rotate`, 'POST', { grace_seconds })).body;
    const next = async (): Promise<Got> => {
      await scene.api.alerts.raise(spent());
      await deliver();
      return scene.receiver.got.at(-1) as Got;
    };
    const second = await rotate(3600);
    const both = await next();
    expect(both.headers['webhook-signature']?.split(' ')).toHaveLength(2);
    for (const { secret } of [webhook, second]) verified(secret, both);
    scene.api.turnClock(hourMs);
    const after = await next();
    expect(after.headers['webhook-signature']?.split(' ')).toHaveLength(1);
    expect(() => verified(webhook.secret, after)).toThrow('No matching signature');
    verified(second.secret, after);
    const third = await rotate(0);
    const last = await next();
    expect(() => verified(second.secret, last)).toThrow('No matching signature');
    verified(third.secret, last);
  });
});

describe('old events', () => {
  it('are deleted after thirty days', async () => {
    const webhook = await make();
    await scene.api.alerts.raise(spent());
    await deliver();
    scene.api.turnClock(29 * 24 * hourMs);
    await scene.api.alerts.deleteOld();
    expect(await listed(webhook)).toHaveLength(1);
    scene.api.turnClock(2 * 24 * hourMs);
    await scene.api.alerts.deleteOld();
    expect(await listed(webhook)).toEqual([]);
    expect(await scene.api.db.sql`select 1 from alert_events`).toHaveLength(0);
  });
});

describe('notices of expiring keys', () => {
  it('include only keys that expire within a week and were created for longer', async () => {
    const { api, tenant } = scene;
    const dayMs = 24 * hourMs;
    const expiring = async (): Promise<string[]> => {
      const told: string[] = [];
      await api.keys.notifyExpiring(7 * dayMs, (_, { name }) => Promise.resolve(void told.push(name)));
      return told;
    };
    const make = (name: string, expires_in_days: number) =>
      ask('/v1/keys', 'POST', { name, expires_at: Math.floor(Date.now() / 1000) + expires_in_days * 86_400 });
    for (const [name, days] of [
      ['month', 30],
      ['weekly', 6],
      ['year', 365],
      ['revoked', 30],
    ] as const) {
      expect((await make(name, days)).status).toBe(201);
    }
    const { body } = await api.ask('/v1/keys', { key: tenant.key });
    const { id } = body.data.find(({ name }: { name: string }) => name === 'revoked');
    expect((await ask(`/v1/keys/${id}`, 'DELETE')).status).toBe(200);
    expect(await expiring()).toEqual([]);
    api.turnClock(23 * dayMs + hourMs);
    const failing = api.keys.notifyExpiring(7 * dayMs, () => Promise.reject(new Error('not told')));
    await expect(failing).rejects.toThrow('not told');
    expect(await expiring()).toEqual(['month']);
    // A delivered notice is not read again.
    expect(await expiring()).toEqual([]);
    api.turnClock(8 * dayMs);
    expect(await expiring()).toEqual([]);
  });

  it('are sent for each of 250 keys', async () => {
    const { api } = scene;
    const dayMs = 24 * hourMs;
    const { key } = await api.organization();
    await api.ask('/v1/keys', {
      key,
      body: { name: 'first', expires_at: Math.floor(Date.now() / 1000) + 30 * 86_400 },
    });
    await api.db.sql`insert into api_keys select (r).* from (
      select jsonb_populate_record(k, jsonb_build_object('id', gen_random_uuid(), 'name', 'made ' || n,
        'secret_hash', '\\x' || md5(n::text))) as r
      from api_keys k, generate_series(1, 249) n where k.name = 'first') made`;
    api.turnClock(24 * dayMs);
    const told = new Set<string>();
    await api.keys.notifyExpiring(7 * dayMs, (_, { name }) => Promise.resolve(void told.add(name)));
    expect(told.size).toBe(250);
  });
});
