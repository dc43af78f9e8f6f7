import { describe, expect, it } from 'vitest';
import { parseId } from '#base/id.ts';
import { makeCluster, nodeBody } from '#test/api/cluster-support.ts';
import { type Answer, useApi } from '#test/api/test-api.ts';

const api = useApi();
const path = '/v1/billing/budget';

/** An organization with a node, allocated since the start of this month, at 10 USD per hour. */
async function useOrganization(price = { currency: 'USD', node_hour: '10' }) {
  const organization = await api().organization();
  const profile = `p-${organization.id.slice(4)}`;
  const card = { hardware_profile: profile, ...price };
  const dates = { effective_from: '2020-01-01', retroactive: true };
  await api().ask('/v1/billing/rate-cards', { body: { ...card, ...dates } });
  const nodes = [nodeBody('gpu-1', { hardware_profile: profile })];
  const cluster = await makeCluster(api(), { organization_id: organization.id, nodes });
  const now = new Date();
  const [start = 0, end = 0] = [0, 1].map((ahead) => Date.UTC(now.getUTCFullYear(), now.getUTCMonth() + ahead));
  const node = `/v1/clusters/${cluster.id}/nodes/gpu-1`;
  await api().ask(`${node}/allocate`, { method: 'POST', body: { at: new Date(start).toISOString() } });
  const ask = (method: string, body?: object): Promise<Answer> =>
    api().ask(path, { method, key: organization.key, ...(body !== undefined && { body }) });
  return {
    ask,
    start,
    month: now.toISOString().slice(0, 7),
    hours: (end - start) / 3_600_000,
    release: () => api().ask(`${node}/release`, { method: 'POST', body: {} }),
    alerts: () => api().db.sql`
      select data from alert_events
      where organization_id = ${parseId('org', organization.id)} and type = 'cost_budget.reached' order by id`,
    audited: () => api().db.sql`
      select before, after from audit_log where target_id = ${organization.id} and action = 'cost_budget.changed'
      order by id`,
  };
}

describe('the forecast of a month', () => {
  it('adds the rest of the month for nodes that are allocated, and nothing for others', async () => {
    const { ask, month, hours, release } = await useOrganization();
    const { body } = await ask('GET');
    const forecast = [{ currency: 'USD', amount: `${hours * 10}.00`, amount_exact: `${hours * 10}.0000000000` }];
    expect(body).toMatchObject({ budget: null, month, forecast, spent_percent: null, forecast_percent: null });
    expect(Number(body.spent[0].amount)).toBeLessThanOrEqual(hours * 10);
    await release();
    const after = (await ask('GET')).body;
    expect(after.forecast).toEqual(after.spent);
  });
});

describe('a cost budget', () => {
  it('is set, compared with costs, audited and removed', async () => {
    const { ask, hours, audited } = await useOrganization();
    const budget = { amount: String(hours * 20), currency: 'USD', alert_percents: [80, 100] };
    const set = await ask('PUT', { amount: budget.amount, currency: 'usd' });
    expect([set.status, set.body]).toMatchObject([200, { budget, forecast_percent: 50 }]);
    expect((await ask('PUT', { ...budget, alert_percents: [90, 50, 90] })).body.budget.alert_percents).toEqual([
      50, 90,
    ]);
    expect((await ask('DELETE')).status).toBe(204);
    expect((await ask('GET')).body.budget).toBeNull();
    expect(await audited()).toMatchObject([
      { before: { amount: null }, after: budget },
      { before: budget, after: { alert_percents: [50, 90] } },
      { after: { amount: null } },
    ]);
  });

  it('is in the billing currency, and needs a currency without one', async () => {
    const organization = await api().organization();
    const ask = (url: string, method: string, body: object) => api().ask(url, { method, body, key: organization.key });
    const wrong = await ask(path, 'PUT', { amount: '5' });
    expect([wrong.status, wrong.body.error.details[0].field]).toEqual([400, 'currency']);
    await ask(`/v1/orgs/${organization.id}/billing-currency`, 'PATCH', { currency: 'EUR' });
    expect((await ask(path, 'PUT', { amount: '5' })).body.budget.currency).toBe('EUR');
  });

  it.each([
    [{}, 'amount'],
    [{ amount: '0' }, 'amount'],
    [{ amount: '-1' }, 'amount'],
    [{ amount: 5 }, 'amount'],
    [{ amount: '5', currency: 'xxz' }, 'currency'],
    [{ amount: '5', alert_percents: [0] }, 'alert_percents.0'],
    [{ amount: '5', period: 'daily' }, 'period'],
  ])('is rejected: %j', async (body, field) => {
    const organization = await api().organization();
    const answer = await api().ask(path, { method: 'PUT', body, key: organization.key });
    expect([answer.status, answer.body.error.details[0].field]).toEqual([400, field]);
  });

  it('raises an alert once for each percentage and month, and again when it is changed', async () => {
    const { ask, alerts, month, release } = await useOrganization();
    await release();
    const { costBudgets } = api().billing;
    const spent = (await ask('GET')).body.spent[0].amount;
    const amount = String(Math.max(0.01, Number(spent) / 0.9).toFixed(4));
    await ask('PUT', { amount, currency: 'USD' });
    for (const _ of [1, 2]) await costBudgets.notify();
    const data = { month, currency: 'USD', spent, forecast: spent };
    expect(await alerts()).toEqual([{ data: { ...data, percent: 80, amount } }]);
    await ask('PUT', { amount: '0.0001', currency: 'USD', alert_percents: [100] });
    for (const _ of [1, 2]) await costBudgets.notify();
    expect((await alerts()).slice(1)).toEqual([{ data: { ...data, percent: 100, amount: '0.0001' } }]);
  });

  it('raises no alert below its percentages', async () => {
    const { ask, alerts, hours } = await useOrganization();
    await ask('PUT', { amount: String(hours * 1000), currency: 'USD' });
    await api().billing.costBudgets.notify();
    expect(await alerts()).toEqual([]);
  });

  it('raises an alert for costs of more digits than a price has', async () => {
    const { ask, alerts } = await useOrganization({ currency: 'IDR', node_hour: '9999999999' });
    await ask('PUT', { amount: '1000', currency: 'IDR' });
    const { spent_percent: spent, forecast_percent: forecast } = (await ask('GET')).body;
    expect([spent > 100, forecast > 10_000]).toEqual([true, true]);
    await api().billing.costBudgets.notify();
    expect(await alerts()).toMatchObject([{ data: { percent: 100, currency: 'IDR' } }]);
  });
});
