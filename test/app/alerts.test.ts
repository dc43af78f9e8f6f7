import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type LocalReceiver, startLocalReceiver } from '#test/alerts/local-receiver.ts';
import { verified } from '#test/alerts/receiver.ts';
import { makePerson, signInPerson } from '#test/portal/visitor.ts';
import { startGateway, type TestGateway } from '#test/gateway.ts';
import { type MailServer, startMailServer } from '#test/mail.ts';

let mail: MailServer;
let receiver: LocalReceiver;
let gateway: TestGateway;

beforeAll(async () => {
  [mail, receiver] = await Promise.all([startMailServer(), startLocalReceiver()]);
  const env = {
    HEADGATE_SMTP_URL: mail.url,
    HEADGATE_PUBLIC_URL: 'https://gateway.example.com',
    HEADGATE_WEBHOOK_HOSTS: receiver.host,
  };
  gateway = await startGateway({ env });
});

afterAll(async () => {
  await gateway.stop();
  await Promise.all([mail.stop(), receiver.close()]);
});

type Json = Readonly<Record<string, unknown>>;

async function json(answer: Promise<Response>): Promise<Json> {
  const response = await answer;
  if (!response.ok) throw new Error(await response.text());
  return (await response.json()) as Json;
}

interface Tenant {
  readonly id: string;
  readonly key: string;
  readonly admin: string;
  /** Id of its webhook. */
  readonly webhookId: string;
  readonly secret: string;
}

async function makeTenant(name: string): Promise<Tenant> {
  const made = await json(gateway.request('/v1/organizations', { body: { name } }));
  const [id, key] = [String(made['id']), String(made['management_key'])];
  const { email: admin } = await makePerson(gateway, { role: 'admin' }, key);
  const webhook = await json(gateway.request('/v1/webhooks', { body: { url: receiver.url }, key }));
  return { id, key, admin, webhookId: String(webhook['id']), secret: String(webhook['secret']) };
}

/** The events that a tenant's webhook got. */
const eventsOf = ({ id, secret }: Tenant): Json[] =>
  receiver.got.filter(({ body }) => body.includes(id)).map((got) => verified(secret, got) as Json);

const typesOf = (tenant: Tenant): string[] => eventsOf(tenant).map(({ type }) => String(type));

describe('alerts of a gateway', () => {
  it('report keys that are created, rotated, reported and revoked, and nothing for a failed request', async () => {
    const tenant = await makeTenant('Keys');
    const { key } = tenant;
    const refused = await gateway.request('/v1/keys', { body: { name: 'x', limits: 1 }, key });
    expect(refused.status).toBe(400);
    const made = await json(gateway.request('/v1/keys', { body: { name: 'laptop' }, key }));
    const id = String(made['id']);
    const rotated = await json(gateway.request(`/v1/keys/${id}/rotate`, { body: { grace_seconds: 0 }, key }));
    await json(gateway.request('/v1/keys/report', { body: { secret: rotated['secret'] }, key: null }));
    const second = await json(gateway.request('/v1/keys', { body: { name: 'desk' }, key }));
    await json(gateway.request(`/v1/keys/${String(second['id'])}`, { method: 'DELETE', key }));
    const all = ['api_key.created', 'api_key.created', 'api_key.reported', 'api_key.revoked', 'api_key.rotated'];
    await expect.poll(() => typesOf(tenant).toSorted()).toEqual(all);
    const created = eventsOf(tenant).find(
      ({ type, data }) => type === 'api_key.created' && (data as Json)['key_id'] === id,
    );
    expect(created).toEqual({
      type: 'api_key.created',
      timestamp: expect.any(String),
      organization_id: tenant.id,
      data: {
        key_id: id,
        name: 'laptop',
        prefix: made['prefix'],
        last4: made['last4'],
        scope: 'inference',
        project_id: made['project_id'],
        service_account_id: null,
        expires_at: null,
        by: { user_id: expect.stringMatching(/^user_/), key_id: expect.stringMatching(/^key_/) },
      },
    });
    for (const { body } of receiver.got) {
      for (const secret of [made['secret'], rotated['secret'], key]) expect(body).not.toContain(secret);
    }
    // A leaked secret is sent by mail where nobody has chosen; a new key is not.
    expect((await mail.next(tenant.admin)).text).toContain('was reported as leaked');
    expect(mail.letters.filter(({ to }) => to.includes(tenant.admin))).toHaveLength(1);
  });

  it('report a low balance once, and send only the chosen events by mail', async () => {
    const tenant = await makeTenant('Low');
    const { id, key } = tenant;
    // Events from before a choice are mailed as they were before.
    const unaddressed = () => gateway.db.sql`select 1 from alert_events where addressed_at is null`;
    await expect.poll(unaddressed).toHaveLength(0);
    const mails = { alert_emails: ['api_key.created'], wallet_alert_below: '5' };
    await json(gateway.request(`/v1/organizations/${id}`, { method: 'PATCH', body: mails, key }));
    const low = (): Json[] => eventsOf(tenant).filter(({ type }) => type === 'wallet.low_balance');
    await expect.poll(low).toMatchObject([{ data: { balance: '0', alert_below: '5', currency: 'USD' } }]);
    await json(gateway.request('/v1/keys', { body: { name: 'phone' }, key }));
    // The low balance, which was before, was not chosen.
    const letter = await mail.next(tenant.admin);
    expect(letter.text).toContain('"phone"');
    expect(letter.text).toContain('https://gateway.example.com/portal/keys/key_');
    expect(low()).toHaveLength(1);
  });

  it('keep secrets and addresses of webhooks out of the log', async () => {
    const tenant = await makeTenant('Logged');
    receiver.status = 500;
    try {
      await json(gateway.request(`/v1/webhooks/${tenant.webhookId}/test`, { method: 'POST', key: tenant.key }));
      await expect.poll(() => typesOf(tenant)).toEqual(['webhook.test']);
    } finally {
      receiver.status = 204;
    }
    const log = gateway.logLines.join('\n');
    expect([log.includes(tenant.secret), log.includes(receiver.url)]).toEqual([false, false]);
  });
});

describe('the webhook pages', () => {
  it('create a webhook, show its secret once, test, resend, rotate and delete it, without JavaScript', async () => {
    const tenant = await makeTenant('Pages');
    const visitor = await signInPerson(gateway, tenant.admin);
    const refused = await visitor.post('/portal/webhooks', { url: 'https://127.0.0.1/', all_events: 'yes' });
    expect(refused.status).toBe(400);
    expect(refused.text).toContain('must name a public address');
    const fields = { url: receiver.url, description: 'Pager & <co>', event_budget_exceeded: 'yes' };
    const made = await visitor.post('/portal/webhooks', fields);
    const secret = /whsec_[A-Za-z0-9+/]{43}=/.exec(made.text)?.[0] ?? '';
    const path = /\/portal\/webhooks\/wh_[0-9a-f]{32}/.exec(made.text)?.[0] ?? '';
    expect([made.status, secret !== '', path !== '']).toEqual([200, true, true]);
    const shown = await visitor.get(path);
    expect(shown.text).toContain('Pager &amp; &lt;co&gt;');
    expect(shown.text).not.toContain('whsec_');
    expect((await visitor.get('/portal/webhooks')).text).toContain('budget.exceeded');

    expect((await visitor.post(`${path}/test`)).headers.location).toBe(`${path}?notice=tested`);
    const isTest = (): number => receiver.got.filter(({ body }) => body.includes(path.split('/').at(-1) ?? '')).length;
    await expect.poll(isTest).toBe(1);
    const replayOf = async (): Promise<string> =>
      /action="([^"]*\/replay)"/.exec((await visitor.get(path)).text)?.[1] ?? '';
    await expect.poll(async () => (await visitor.get(path)).text).toContain('delivered');
    expect((await visitor.post(await replayOf())).headers.location).toBe(`${path}?notice=replayed`);
    await expect.poll(isTest).toBe(2);

    const rotated = await visitor.post(`${path}/rotate`, { grace_seconds: '3600' });
    expect(/whsec_[A-Za-z0-9+/]{43}=/.exec(rotated.text)?.[0]).not.toBe(secret);
    expect((await visitor.post(`${path}/off`)).status).toBe(303);
    expect((await visitor.post(`${path}/test`)).status).toBe(409);
    expect(
      (await visitor.post(path, { ...fields, url: receiver.url, description: 'Other', began_with: '{}' })).status,
    ).toBe(303);
    expect((await visitor.get(path)).text).toContain('Other');
    expect((await visitor.post(`${path}/delete`)).headers.location).toBe('/portal/webhooks?notice=deleted');
    expect((await visitor.get(path)).status).toBe(404);

    expect((await visitor.post('/portal/webhooks/mail', { event_engine_failed: 'yes' })).status).toBe(303);
    const organization = await json(gateway.request(`/v1/organizations/${tenant.id}`, { key: tenant.key }));
    expect(organization['alert_emails']).toEqual(['engine.failed']);
  });
});
