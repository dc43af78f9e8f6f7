import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startGateway, type TestGateway } from '#test/gateway.ts';
import { type ArrivedLetter, type MailServer, startMailServer } from '#test/mail.ts';
import { makePerson } from '#test/portal/visitor.ts';

let mail: MailServer;
let gateway: TestGateway;

beforeAll(async () => {
  mail = await startMailServer();
  const env = { HEADGATE_SMTP_URL: mail.url, HEADGATE_PUBLIC_URL: 'https://gateway.example.com' };
  gateway = await startGateway({ env });
});

afterAll(async () => {
  await gateway.stop();
  await mail.stop();
});

interface Tenant {
  readonly id: string;
  /** Its management key. */
  readonly key: string;
  readonly admin: string;
  readonly member: string;
}

async function json(answer: Promise<Response>): Promise<Record<string, unknown>> {
  const response = await answer;
  if (!response.ok) throw new Error(await response.text());
  return (await response.json()) as Record<string, unknown>;
}

let references = 0;
function book(what: 'credits' | 'adjustments', { id }: Tenant, amount: string): Promise<unknown> {
  references += 1;
  const body = { amount, reference: `booking-${references}`, ...(what === 'adjustments' && { reason: 'a test' }) };
  return json(gateway.request(`/v1/wallet/${what}?organization_id=${id}`, { body }));
}

async function makeTenant(name: string): Promise<Tenant> {
  const made = await json(gateway.request('/v1/organizations', { body: { name } }));
  const [id, key] = [String(made['id']), String(made['management_key'])];
  const { email: admin } = await makePerson(gateway, { role: 'admin' }, key);
  const { email: member } = await makePerson(gateway, { role: 'member' }, key);
  const tenant = { id, key, admin, member };
  await book('credits', tenant, '10');
  return tenant;
}

const change = ({ id, key }: Tenant, wallet_alert_below: string | null): Promise<Record<string, unknown>> =>
  json(gateway.request(`/v1/organizations/${id}`, { method: 'PATCH', body: { wallet_alert_below }, key }));

const read = ({ id, key }: Tenant): Promise<Record<string, unknown>> =>
  json(gateway.request(`/v1/organizations/${id}`, { key }));

const lettersTo = (email: string): readonly ArrivedLetter[] => mail.letters.filter(({ to }) => to.includes(email));

/** Checks whether the notice to its administrators is recorded. */
const isTold = async (tenant: Tenant): Promise<boolean> => (await read(tenant))['wallet_alerted_at'] !== null;
const patience = { timeout: 300_000 };

describe('a low balance alert', () => {
  it("goes only to the organization's administrators, once until the balance is no longer low", async () => {
    const [low, high] = [await makeTenant('Low'), await makeTenant('High')];
    expect(await change(high, '10')).toMatchObject({ wallet_alert_below: '10', wallet_alerted_at: null });
    expect(await change(low, '10.5')).toMatchObject({ wallet_alert_below: '10.5', wallet_alerted_at: null });
    const { text } = await mail.next(low.admin);
    expect(text).toContain('"Low"');
    expect(text).toContain('has 10 USD left, less than your alert threshold of 10.5 USD');
    await expect.poll(() => isTold(low), patience).toBe(true);

    // 10 is not below 10. The poll that notifies of this balance passes over the one already notified.
    await book('adjustments', high, '-0.000000000001');
    expect((await mail.next(high.admin)).text).toContain('9.999999999999 USD left');
    await expect.poll(() => isTold(high), patience).toBe(true);
    expect([lettersTo(low.admin).length, lettersTo(high.admin).length]).toEqual([1, 1]);

    await book('credits', low, '1');
    await expect.poll(() => isTold(low), patience).toBe(false);
    await book('adjustments', low, '-2');
    expect((await mail.next(low.admin)).text).toContain('has 9 USD left');
    await expect.poll(() => isTold(low), patience).toBe(true);

    // A changed amount sends a new notice, and null sends none.
    expect(await change(low, '9.5')).toMatchObject({ wallet_alerted_at: null });
    expect((await mail.next(low.admin)).text).toContain('less than your alert threshold of 9.5 USD');
    expect(await change(low, null)).toMatchObject({ wallet_alert_below: null, wallet_alerted_at: null });
    const { data } = await json(gateway.request(`/v1/audit?action=organization.changed`, { key: low.key }));
    const noted = data as { before: Record<string, unknown> | null; after: Record<string, unknown> }[];
    const amounts = noted.map(({ before, after }) => [before?.['wallet_alert_below'], after['wallet_alert_below']]);
    expect(amounts).toEqual([
      ['9.5', null],
      ['10.5', '9.5'],
      [null, '10.5'],
    ]);
    const isSaid = (line: string): boolean => line.includes(low.id) && line.includes('is below its alert threshold');
    const said = gateway.logLines.filter(isSaid).map((line) => JSON.parse(line) as Record<string, unknown>);
    expect(said.map(({ balance, lowBalance }) => [balance, lowBalance])).toEqual([
      ['10', '10.5'],
      ['9', '10.5'],
      ['9', '9.5'],
    ]);
    expect([lettersTo(low.member), lettersTo(high.member)]).toEqual([[], []]);
    expect(mail.letters.filter(({ to }) => to.some((address) => address.endsWith('.invalid')))).toEqual([]);
  });
});
