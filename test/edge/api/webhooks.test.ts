import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Receiver, startReceiver } from '#test/alerts/receiver.ts';
import { type Answer, type TestApi, startApi } from '#test/api/test-api.ts';

let receiver: Receiver;
let api: TestApi;

beforeAll(async () => {
  receiver = await startReceiver();
  const { outbound } = receiver;
  api = await startApi({ webhooks: { outbound, endpointsMax: 3, allowedHosts: ['hooks.internal', '10.0.0.5:8080'] } });
});

afterAll(async () => {
  await api.stop();
  await receiver.close();
});

const url = 'https://hooks.example/in';
const make = (body: object, key?: string): Promise<Answer> =>
  api.ask('/v1/webhooks', { body, ...(key !== undefined && { key }) });

describe('POST /v1/webhooks', () => {
  it.each([
    ['http://hooks.example/in', 'https://'],
    ['ftp://hooks.example/in', 'https://'],
    ['hooks.example', 'must be a URL'],
    ['https://user:pass@hooks.example/', 'user name or password'],
    ['https://hooks.example/#part', 'fragment'],
    ['https://hooks.example:22/', 'must use port 443 or 8443'],
    ['https://127.0.0.1/', 'must name a public address'],
    ['https://2130706433/', 'must name a public address'],
    ['https://0x7f.1/', 'must name a public address'],
    ['https://10.0.0.5/', 'must name a public address'],
    ['https://169.254.169.254/latest', 'must name a public address'],
    ['https://100.64.0.1/', 'must name a public address'],
    ['https://[::1]/', 'must name a public address'],
    ['https://[::]/', 'must name a public address'],
    ['https://[::ffff:10.0.0.5]/', 'must name a public address'],
    ['https://[::10.0.0.5]/', 'must name a public address'],
    ['https://[64:ff9b::a00:5]/', 'must name a public address'],
    ['https://[64:ff9b:1::a00:5]/', 'must name a public address'],
    ['https://[2002:a00:5::]/', 'must name a public address'],
    ['https://[2001:0:a00:5::]/', 'must name a public address'],
    ['https://[2001:db8::1]/', 'must name a public address'],
    ['https://[fd00::1]/', 'must name a public address'],
    ['https://[fe80::1]/', 'must name a public address'],
    ['https://[fec0::1]/', 'must name a public address'],
    ['https://[4000::1]/', 'must name a public address'],
    ['http://10.0.0.5:8081/', 'https://'],
    ['http://hooks.internal:8080/', 'https://'],
    [`https://hooks.example/${'x'.repeat(2048)}`, 'characters'],
  ])('returns 400 for the address %s', async (address, why) => {
    const refused = await make({ url: address });
    expect([refused.status, refused.body.error.param]).toEqual([400, 'url']);
    expect(refused.body.error.message).toContain(why);
  });

  it.each([
    ['a kind that there is not', { url, events: ['wallet.lost'] }],
    ['a kind that nobody chooses', { url, events: ['webhook.test'] }],
    ['no kinds', { url, events: [] }],
    ['an unknown field', { url, secret: 'whsec_AAAA' }],
    ['no address', {}],
    ['a description with NUL', { url, description: 'a\0b' }],
    ['an address with NUL', { url: `${url}?a\0b` }],
    ['an address that no text is', { url: `${url}?\ud800` }],
    ['an address of two lines', { url: `${url}\n.example/` }],
    ['an address that a terminal obeys', { url: `${url}?\u001b[2J` }],
    ['an address with a blank', { url: `${url}/a b` }],
    ['an address that reads from the right', { url: `${url}/\u202egpj` }],
  ])('returns 400 for %s', async (_, body) => {
    expect((await make(body)).status).toBe(400);
  });

  it("returns an error above the organization's limit, and for a closed or unknown organization", async () => {
    const { id, key } = await api.organization('Full');
    for (let made = 0; made < 3; made += 1) expect((await make({ url }, key)).status).toBe(201);
    const refused = await make({ url }, key);
    expect([refused.status, refused.body.error.message]).toEqual([
      409,
      'The organization has 3 webhooks; the limit is 3. Delete one first.',
    ]);
    const closing = await api.organization('Closing');
    await api.ask(`/v1/organizations/${closing.id}`, { method: 'DELETE' });
    const ofClosed = await api.ask(`/v1/webhooks?organization_id=${closing.id}`, { body: { url } });
    expect([ofClosed.status, ofClosed.body.error.code]).toEqual([409, 'conflict']);
    const nobody = `org_${'0'.repeat(32)}`;
    expect((await api.ask(`/v1/webhooks?organization_id=${nobody}`, { body: { url } })).status).toBe(404);
    expect((await api.ask(`/v1/webhooks?organization_id=${id}`)).body.data).toHaveLength(3);
  });

  it('returns 404 to another organization on every route of the webhook', async () => {
    const [owner, stranger] = [await api.organization('Owner'), await api.organization('Stranger')];
    const { body: webhook } = await make({ url }, owner.key);
    const { body: test } = await api.ask(`/v1/webhooks/${webhook.id}/test`, { method: 'POST', key: owner.key });
    const path = `/v1/webhooks/${webhook.id}`;
    const { key } = stranger;
    const asked = [
      api.ask(path, { key }),
      api.ask(path, { method: 'PATCH', body: { enabled: false }, key }),
      api.ask(path, { method: 'DELETE', key }),
      api.ask(`${path}/rotate`, { body: {}, key }),
      api.ask(`${path}/test`, { method: 'POST', key }),
      api.ask(`${path}/deliveries`, { key }),
      api.ask(`${path}/deliveries/${test.id}/replay`, { method: 'POST', key }),
      api.ask(`/v1/webhooks?organization_id=${owner.id}`, { key }),
    ];
    expect((await Promise.all(asked)).map(({ status }) => status)).toEqual(asked.map(() => 404));
    expect((await api.ask('/v1/webhooks', { key })).body.data).toEqual([]);
    expect((await api.ask(path, { key: owner.key })).body).toMatchObject({ enabled: true });
  });
});

describe('a webhook', () => {
  it('returns its secret only when created, and is stored encrypted', async () => {
    const { key } = await api.organization('Secretive');
    const { status, body } = await make(
      { url: `${url}?token=hush`, description: 'Pager', events: ['budget.reached'] },
      key,
    );
    expect(status).toBe(201);
    const { secret, ...shown } = body;
    expect(secret).toMatch(/^whsec_[A-Za-z0-9+/]{43}=$/);
    expect(shown).toEqual({
      id: expect.stringMatching(/^wh_[0-9a-f]{32}$/),
      object: 'webhook',
      url: `${url}?token=hush`,
      description: 'Pager',
      events: ['budget.reached'],
      enabled: true,
      disabled_reason: null,
      failing_since: null,
      created_at: expect.any(Number),
      secret_rotated_at: null,
      former_secret_ends_at: null,
    });
    expect((await api.ask(`/v1/webhooks/${body.id}`, { key })).body).toEqual(shown);
    expect((await api.ask('/v1/webhooks', { key })).body.data).toEqual([shown]);
    const changed = { url, description: 'Pager of two', events: null, enabled: false };
    const patched = await api.ask(`/v1/webhooks/${body.id}`, { method: 'PATCH', body: changed, key });
    expect([patched.status, patched.body]).toEqual([200, { ...shown, ...changed }]);
    const { body: audit } = await api.ask(`/v1/audit?target_id=${body.id}`, { key });
    expect(audit.data.map(({ action }: { action: string }) => action)).toEqual(['webhook.changed', 'webhook.created']);
    const kept = JSON.stringify([audit, await api.db.sql`select * from webhook_endpoints`, api.logLines]);
    for (const hidden of [secret, secret.slice(6), 'hush'])
      expect(JSON.stringify(audit) + api.logLines.join()).not.toContain(hidden);
    expect(kept).not.toContain(secret.slice(6));
  });

  it('gets a new secret by rotation, and is deleted with all its deliveries', async () => {
    const { key } = await api.organization('Turning');
    const { body: made } = await make({ url }, key);
    const path = `/v1/webhooks/${made.id}`;
    expect((await api.ask(`${path}/rotate`, { body: { grace_seconds: 604_801 }, key })).status).toBe(400);
    const { body: rotated } = await api.ask(`${path}/rotate`, { body: {}, key });
    expect(rotated.secret).not.toBe(made.secret);
    expect(rotated.former_secret_ends_at - rotated.secret_rotated_at).toBe(86_400);
    const { body: again } = await api.ask(`${path}/rotate`, { body: { grace_seconds: 0 }, key });
    expect(again.former_secret_ends_at).toBeNull();
    await api.ask(`${path}/test`, { method: 'POST', key });
    const deleted = await api.ask(path, { method: 'DELETE', key });
    expect([deleted.status, deleted.body]).toEqual([200, { id: made.id, object: 'webhook', deleted: true }]);
    expect((await api.ask(path, { key })).status).toBe(404);
    expect((await api.ask(`${path}/deliveries`, { key })).status).toBe(404);
    expect((await api.ask(path, { method: 'DELETE', key })).status).toBe(404);
  });

  it('can use the hosts that the operator allows, also by plain HTTP', async () => {
    const { key } = await api.organization('Inside');
    const allowed = ['http://hooks.internal/in', 'https://hooks.internal/in', 'http://10.0.0.5:8080/in'];
    for (const address of allowed) expect((await make({ url: address }, key)).status).toBe(201);
  });

  it('returns 409 for a test or a replay while it is disabled', async () => {
    const { key } = await api.organization('Off');
    const { body: webhook } = await make({ url, enabled: false }, key);
    const test = await api.ask(`/v1/webhooks/${webhook.id}/test`, { method: 'POST', key });
    expect([test.status, test.body.error.code]).toEqual([409, 'conflict']);
  });

  it('accepts ten waiting tests, rejects the eleventh, and lists deliveries in pages', async () => {
    const { key } = await api.organization('Testing');
    const { body: webhook } = await make({ url }, key);
    const test = (): Promise<Answer> => api.ask(`/v1/webhooks/${webhook.id}/test`, { method: 'POST', key });
    for (let sent = 0; sent < 10; sent += 1) expect((await test()).status).toBe(202);
    expect((await test()).status).toBe(409);
    const { body: page } = await api.ask(`/v1/webhooks/${webhook.id}/deliveries?limit=4`, { key });
    expect([page.data.length, page.has_more]).toEqual([4, true]);
    const rest = await api.ask(`/v1/webhooks/${webhook.id}/deliveries?limit=9&cursor=${page.next_cursor}`, { key });
    expect([rest.body.data.length, rest.body.has_more]).toEqual([6, false]);
  });
});

describe('alert emails of an organization', () => {
  it('accept a choice of the existing kinds', async () => {
    const { id, key } = await api.organization('Mailed');
    const patch = (alert_emails: unknown): Promise<Answer> =>
      api.ask(`/v1/organizations/${id}`, { method: 'PATCH', body: { alert_emails }, key });
    expect((await patch(['wallet.lost'])).status).toBe(400);
    expect((await patch(['webhook.test'])).status).toBe(400);
    expect((await api.ask(`/v1/organizations/${id}`, { key })).body.alert_emails).toBeNull();
    expect((await patch(['api_key.created', 'api_key.created'])).body.alert_emails).toEqual(['api_key.created']);
    expect((await patch([])).body.alert_emails).toEqual([]);
    expect((await patch(null)).body.alert_emails).toBeNull();
  });
});
