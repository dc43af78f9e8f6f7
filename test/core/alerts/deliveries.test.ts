import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { parseId } from '#base/id.ts';
import type { Alert } from '#core/alerts/alerts.ts';
import { type TestApi, startApi } from '../../edge/api/test-api.ts';
import { type Answer, type Got, idOf, ok, type Receiver, startReceiver, verified } from './receiver.ts';

const [url, hourMs] = ['https://hooks.example/in', 3_600_000];
const hosts = {
  'hooks.example': ['93.184.215.14'],
  'slow.example': ['93.184.215.15'],
  'inside.example': ['10.0.0.5'],
  'both.example': ['93.184.215.14', '127.0.0.1'],
  'mapped.example': ['::ffff:169.254.169.254'],
  'nat64.example': ['64:ff9b::7f00:1'],
  'compatible.example': ['::7f00:1'],
};

let receiver: Receiver;
let api: TestApi;
let tenant: { id: string; key: string };

beforeEach(async () => {
  receiver = await startReceiver(hosts);
  api = await startApi({ webhooks: { outbound: receiver.outbound, timeoutMs: 1000, allowedHosts: [] } });
  tenant = await api.organization();
  // Of the keys that organizations begin with nobody was to be told.
  await deliver();
});

afterEach(async () => {
  await api.stop();
  await receiver.close();
});

interface Webhook {
  readonly id: string;
  readonly secret: string;
}

async function make(body: object = {}): Promise<Webhook> {
  const made = await api.ask('/v1/webhooks', { body: { url, ...body }, key: tenant.key });
  expect(made.status).toBe(201);
  return made.body;
}

async function deliver(alerts = api.alerts): Promise<void> {
  await alerts.deliver();
  await alerts.settled();
}

const organizationId = (): string => parseId('org', tenant.id) ?? '';

const spent = (name = 'Team'): Extract<Alert, { readonly type: 'budget.exceeded' }> => ({
  organizationId: organizationId(),
  type: 'budget.exceeded',
  data: { budget_id: 'bud_1', name, limit: '10', spent: '10.5', further: 1 },
});

const ask = (path: string, method = 'GET'): ReturnType<TestApi['ask']> => api.ask(path, { method, key: tenant.key });
const read = async ({ id }: Webhook) => (await ask(`/v1/webhooks/${id}`)).body;
const listed = async ({ id }: Webhook) => (await ask(`/v1/webhooks/${id}/deliveries`)).body.data;

const status = (code: number, headers = {}): Answer => ({ status: code, headers });

describe('an alert is refused', () => {
  it('of a kind that there is not, and with data that is not of its kind', async () => {
    const base = { organizationId: organizationId() };
    const wrong = [
      { ...base, type: 'wallet.lost', data: {} },
      { ...base, type: 'constructor', data: {} },
      { ...base, type: 'wallet.low_balance', data: { balance: 1 } },
      { ...base, type: 'wallet.low_balance', data: { balance: '1', alert_below: '2', currency: 'USD', more: 1 } },
    ];
    for (const alert of wrong) await expect(api.alerts.raise(alert as Alert)).rejects.toThrow(/kind/);
    expect(await api.db.sql`select 1 from alert_events where addressed_at is null`).toHaveLength(0);
  });

  it('with what it would have told of: none is left of a transaction that fails', async () => {
    const webhook = await make();
    const failing = api.db.orm.transaction(async (tx) => {
      await api.alerts.raiseIn(tx, spent());
      throw new Error('undone');
    });
    await expect(failing).rejects.toThrow('undone');
    await deliver();
    expect([receiver.got, await listed(webhook)]).toEqual([[], []]);
  });
});

describe('no connection is made', () => {
  it.each(['inside', 'both', 'mapped', 'nat64', 'compatible'])(
    'to %s.example, whose address is not public',
    async (name) => {
      const webhook = await make({ url: `https://${name}.example/in` });
      await api.alerts.raise(spent());
      await deliver();
      expect([receiver.resolved, receiver.dialed]).toEqual([[`${name}.example`], []]);
      expect(await listed(webhook)).toMatchObject([
        { status: 'pending', attempts: 1, last_status: null, last_error: 'not_public' },
      ]);
    },
  );

  it('to a name that is another one when it is asked for again: it is asked for once, and what it said is dialed', async () => {
    const webhook = await make();
    const { resolve } = receiver.outbound;
    let asked = 0;
    Object.assign(receiver.outbound, {
      async resolve(name: string) {
        asked += 1;
        return asked === 1 ? resolve(name) : ['127.0.0.1'];
      },
    });
    await api.alerts.raise(spent());
    await deliver();
    expect([asked, receiver.dialed]).toEqual([1, ['93.184.215.14:443']]);
    expect(await listed(webhook)).toMatchObject([{ status: 'delivered' }]);
    // The next event asks anew, and finds what is not public.
    await api.alerts.raise(spent());
    await deliver();
    expect([asked, receiver.dialed.length]).toEqual([2, 1]);
  });

  it('to where a redirect leads', async () => {
    const webhook = await make();
    receiver.answers = () => status(302, { location: 'https://hooks.example/elsewhere' });
    await api.alerts.raise(spent());
    await deliver();
    expect(receiver.got.map(({ path }) => path)).toEqual(['/in']);
    expect(await listed(webhook)).toMatchObject([{ status: 'pending', last_status: 302, last_error: 'redirect' }]);
  });

  it('to a server whose certificate is for another name', async () => {
    receiver.hosts['stolen.example'] = ['93.184.215.14'];
    const webhook = await make({ url: 'https://stolen.example/in' });
    await api.alerts.raise(spent());
    await deliver();
    expect(receiver.got).toEqual([]);
    expect(await listed(webhook)).toMatchObject([{ status: 'pending', last_error: 'unreachable' }]);
  });
});

describe('an event', () => {
  it('comes signed as Standard Webhooks says, and nobody else gets it', async () => {
    const other = await api.organization('Other');
    await api.ask('/v1/webhooks', { body: { url: 'https://slow.example/other' }, key: other.key });
    const webhook = await make();
    const deaf = await make({ url: 'https://hooks.example/deaf', events: ['wallet.low_balance'] });
    await api.alerts.raise(spent());
    await deliver();
    const [got, ...more] = receiver.got;
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
      organization_id: tenant.id,
      data: { budget_id: 'bud_1', name: 'Team', limit: '10', spent: '10.5', further: 1 },
    });
    expect(() => verified(deaf.secret, got)).toThrow('No matching signature');
    expect(() => verified(webhook.secret, { ...got, body: `${got.body} ` })).toThrow('No matching signature');
    expect(await listed(webhook)).toEqual([
      {
        id: expect.stringMatching(/^dlv_/),
        object: 'webhook.delivery',
        event_id: idOf(got),
        type: 'budget.exceeded',
        data: { budget_id: 'bud_1', name: 'Team', limit: '10', spent: '10.5', further: 1 },
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

  it('is told once under a name', async () => {
    await make();
    for (const name of ['a', 'b', 'a']) await api.alerts.raise({ ...spent(name), once: name });
    await deliver();
    expect(receiver.got).toHaveLength(2);
  });

  it('is tried again for about a day, ever more seldom, under the same id and signed anew', async () => {
    const webhook = await make();
    receiver.answers = () => status(500);
    await api.alerts.raise(spent());
    const waits: number[] = [];
    for (;;) {
      await deliver();
      const [delivery] = await listed(webhook);
      expect(delivery).toMatchObject({ attempts: waits.length + 1, last_status: 500, last_error: 'status' });
      if (delivery.status === 'failed') break;
      waits.push(delivery.next_attempt_at - delivery.last_attempt_at);
      // A second before it is due nothing is sent.
      const before = receiver.got.length;
      api.turnClock(waits.at(-1)! * 1000 - 2000);
      await deliver();
      expect(receiver.got).toHaveLength(before);
      api.turnClock(3000);
    }
    expect(waits).toHaveLength(10);
    const planned = [5, 20, 80, 320, 1280, 5120, 20_480, 21_600, 21_600, 21_600];
    for (const [index, wait] of waits.entries()) {
      const plan = planned[index] ?? 0;
      expect([wait >= plan * 0.8 - 1, wait <= plan * 1.2 + 1]).toEqual([true, true]);
    }
    expect(new Set(receiver.got.map(idOf)).size).toBe(1);
    expect(new Set(receiver.got.map(({ body }) => body)).size).toBe(1);
    expect(new Set(receiver.got.map(({ headers }) => headers['webhook-timestamp'])).size).toBe(11);
    for (const got of receiver.got) verified(webhook.secret, got);
    api.turnClock(48 * hourMs);
    await deliver();
    expect(receiver.got).toHaveLength(11);
  });

  it('waits as long as its receiver asks for', async () => {
    const webhook = await make();
    receiver.answers = () => status(429, { 'retry-after': '600' });
    await api.alerts.raise(spent());
    await deliver();
    const [delivery] = await listed(webhook);
    expect(delivery.next_attempt_at - delivery.last_attempt_at).toBe(600);
  });

  it('that is never answered counts as not taken', async () => {
    const webhook = await make();
    receiver.answers = () => null;
    await api.alerts.raise(spent());
    await deliver();
    expect(await listed(webhook)).toMatchObject([{ status: 'pending', last_status: null, last_error: 'timeout' }]);
  });

  it('is sent again when somebody asks for it, arrived or not', async () => {
    const webhook = await make();
    receiver.answers = () => status(404);
    await api.alerts.raise(spent());
    for (let tries = 0; tries < 11; tries += 1) {
      await deliver();
      api.turnClock(8 * hourMs);
    }
    const [failed] = await listed(webhook);
    expect(failed).toMatchObject({ status: 'failed', attempts: 11 });
    receiver.answers = () => ok;
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
    expect(new Set(receiver.got.map(idOf))).toEqual(new Set([failed.event_id]));
    expect((await ask(`/v1/webhooks/${webhook.id}/deliveries/dlv_${'0'.repeat(32)}/replay`, 'POST')).status).toBe(404);
    const second = await make();
    expect((await ask(`/v1/webhooks/${second.id}/deliveries/${failed.id}/replay`, 'POST')).status).toBe(404);
  });

  it('of a test goes to the one webhook alone, and once', async () => {
    const [webhook] = [await make({ events: ['budget.reached'] }), await make()];
    receiver.answers = () => status(500);
    await ask(`/v1/webhooks/${webhook.id}/test`, 'POST');
    await deliver();
    api.turnClock(hourMs);
    await deliver();
    expect(receiver.got).toHaveLength(1);
    expect(verified(webhook.secret, receiver.got[0] as Got)).toMatchObject({
      type: 'webhook.test',
      data: { webhook_id: webhook.id, origin: 'https://hooks.example' },
    });
    expect(await listed(webhook)).toMatchObject([{ status: 'failed', attempts: 1, type: 'webhook.test' }]);
  });
});

describe('a secret that is rotated', () => {
  it('signs beside the new one until its grace is over', async () => {
    const webhook = await make();
    const rotate = async (grace_seconds: number): Promise<Webhook> =>
      (await api.ask(`/v1/webhooks/${webhook.id}/rotate`, { body: { grace_seconds }, key: tenant.key })).body;
    const next = async (): Promise<Got> => {
      await api.alerts.raise(spent());
      await deliver();
      return receiver.got.at(-1) as Got;
    };
    const second = await rotate(3600);
    const both = await next();
    expect(both.headers['webhook-signature']?.split(' ')).toHaveLength(2);
    for (const { secret } of [webhook, second]) verified(secret, both);
    api.turnClock(hourMs);
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

describe('what goes wrong in the middle', () => {
  it('of a gateway that dies between sending and noting: another one sends it again, under the same id', async () => {
    const webhook = await make();
    const dying = api.secondRooms().alerts;
    const arrived = Promise.withResolvers<void>();
    receiver.answers = () => {
      arrived.resolve();
      return null;
    };
    await api.alerts.raise(spent());
    await dying.deliver();
    await arrived.promise;
    // It writes nothing more.
    await dying.close(0);
    receiver.answers = () => ok;
    await deliver();
    expect(receiver.got).toHaveLength(1);
    api.turnClock(50_000);
    await deliver();
    expect(receiver.got).toHaveLength(2);
    expect(new Set(receiver.got.map(idOf)).size).toBe(1);
    expect(await listed(webhook)).toMatchObject([{ status: 'delivered', attempts: 1 }]);
  });

  it('of a gateway that is overtaken: what it knew late changes nothing', async () => {
    const webhook = await make();
    const frozen = api.secondRooms({ webhooks: { outbound: receiver.outbound, timeoutMs: 60_000 } }).alerts;
    const [arrived, late] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    receiver.answers = async () => {
      arrived.resolve();
      await late.promise;
      return status(500);
    };
    await api.alerts.raise(spent());
    await frozen.deliver();
    await arrived.promise;
    receiver.answers = () => ok;
    api.turnClock(2 * 60_000);
    await deliver();
    late.resolve();
    await frozen.settled();
    expect(await listed(webhook)).toMatchObject([{ status: 'delivered', attempts: 1, last_status: 204 }]);
    expect(await read(webhook)).toMatchObject({ failing_since: null });
  });

  it('is shared by gateways: each event is sent by one of them', async () => {
    const webhook = await make();
    for (let raised = 0; raised < 40; raised += 1) await api.alerts.raise(spent(String(raised)));
    const second = api.secondRooms().alerts;
    await Promise.all([deliver(), deliver(second)]);
    expect(new Set(receiver.got.map(idOf)).size).toBe(40);
    expect(receiver.got).toHaveLength(40);
    expect((await listed(webhook)).every((one: { status: string }) => one.status === 'delivered')).toBe(true);
  });

  it('of a webhook that is deleted or switched off: nothing more is sent', async () => {
    const [deleted, off] = [await make(), await make({ url: 'https://slow.example/off' })];
    receiver.answers = () => status(503);
    await api.alerts.raise(spent());
    const deleting = Promise.withResolvers<void>();
    receiver.answers = async ({ host }) => {
      if (host === 'hooks.example') {
        await ask(`/v1/webhooks/${deleted.id}`, 'DELETE');
        deleting.resolve();
      }
      return status(503);
    };
    await deliver();
    await deleting.promise;
    await api.ask(`/v1/webhooks/${off.id}`, { method: 'PATCH', body: { enabled: false }, key: tenant.key });
    expect(await listed(off)).toMatchObject([{ status: 'failed', last_error: 'disabled', next_attempt_at: null }]);
    await api.alerts.raise(spent());
    api.turnClock(hourMs);
    await deliver();
    expect(receiver.got).toHaveLength(2);
    expect(await api.db.sql`select 1 from alert_deliveries where status = 'pending'`).toHaveLength(0);
    // Switched on again it gets what comes, and what somebody sends again.
    await api.ask(`/v1/webhooks/${off.id}`, { method: 'PATCH', body: { enabled: true }, key: tenant.key });
    await api.alerts.raise(spent());
    await deliver();
    expect(receiver.got).toHaveLength(3);
  });
});

describe('a slow receiver', () => {
  it('with a thousand events holds up neither others nor the other webhooks of its organization', async () => {
    const slow = await make({ url: 'https://slow.example/in', events: ['budget.exceeded'] });
    const quick = await make({ events: ['budget.reached'] });
    const other = await api.organization('Other');
    const { body: others } = await api.ask('/v1/webhooks', { body: { url }, key: other.key });
    const open = Promise.withResolvers<void>();
    let [atOnce, mostAtOnce] = [0, 0];
    receiver.answers = async ({ host }) => {
      if (host !== 'slow.example') return ok;
      atOnce += 1;
      mostAtOnce = Math.max(mostAtOnce, atOnce);
      await open.promise;
      atOnce -= 1;
      return ok;
    };
    const impatient = api.secondRooms({ webhooks: { outbound: receiver.outbound, timeoutMs: 120_000 } }).alerts;
    const names = Array.from({ length: 1000 }, (_, index) => String(index));
    for (const name of names) await impatient.raise(spent(name));
    for (let raised = 0; raised < 20; raised += 1) await impatient.raise({ ...spent(), type: 'budget.reached' });
    await impatient.raise({ ...spent(), organizationId: parseId('org', other.id) ?? '' });
    await impatient.deliver();
    const quickOnes = (): Got[] => receiver.got.filter(({ host }) => host === 'hooks.example');
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
    const ofSlow = receiver.got.filter((got) => got.host === 'slow.example');
    expect([ofSlow.length, new Set(ofSlow.map(idOf)).size]).toEqual([1000, 1000]);
    const [counted] = await api.db.sql`
      select count(*)::int as delivered from alert_deliveries d join webhook_endpoints e on e.id = d.endpoint_id
      where e.id = ${parseId('wh', slow.id) ?? ''}::uuid and d.status = 'delivered' and d.attempts = 1`;
    expect(counted).toEqual({ delivered: 1000 });
  });
});

describe('a webhook where nothing arrives', () => {
  async function failFor(days: number): Promise<void> {
    for (let passed = 0; passed < days * 24; passed += 12) {
      await api.alerts.raise(spent());
      await deliver();
      api.turnClock(12 * hourMs);
    }
    await deliver();
  }

  it('is switched off after three days, which is told to the others', async () => {
    const webhook = await make();
    const watching = await make({ url: 'https://slow.example/watching', events: ['webhook.disabled'] });
    receiver.answers = ({ host }) => (host === 'hooks.example' ? status(500) : ok);
    await failFor(2.5);
    expect(await read(webhook)).toMatchObject({ enabled: true, failing_since: expect.any(Number) });
    await failFor(1);
    expect(await read(webhook)).toMatchObject({ enabled: false, disabled_reason: 'failing' });
    const told = receiver.got.filter(({ host }) => host === 'slow.example');
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
    await api.ask(`/v1/webhooks/${webhook.id}`, { method: 'PATCH', body: { enabled: true }, key: tenant.key });
    expect(await read(webhook)).toMatchObject({ enabled: true, disabled_reason: null, failing_since: null });
  });

  it('is not while something arrives now and then', async () => {
    const webhook = await make();
    receiver.answers = () => status(500);
    await failFor(2.5);
    receiver.answers = () => ok;
    await api.alerts.raise(spent());
    await deliver();
    receiver.answers = () => status(500);
    await failFor(2.5);
    expect(await read(webhook)).toMatchObject({ enabled: true, disabled_reason: null });
  });

  it('is switched off at once where its receiver says that it is gone', async () => {
    const webhook = await make();
    receiver.answers = () => status(410);
    await api.alerts.raise(spent());
    await deliver();
    expect(await read(webhook)).toMatchObject({ enabled: false, disabled_reason: 'gone' });
    expect(await listed(webhook)).toMatchObject([{ status: 'failed', last_status: 410, last_error: 'disabled' }]);
  });
});

describe('events', () => {
  it('are kept for thirty days', async () => {
    const webhook = await make();
    await api.alerts.raise(spent());
    await deliver();
    api.turnClock(29 * 24 * hourMs);
    await api.alerts.deleteOld();
    expect(await listed(webhook)).toHaveLength(1);
    api.turnClock(2 * 24 * hourMs);
    await api.alerts.deleteOld();
    expect(await listed(webhook)).toEqual([]);
    expect(await api.db.sql`select 1 from alert_events`).toHaveLength(0);
  });
});
