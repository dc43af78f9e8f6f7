import { describe, expect, it } from 'vitest';
import { uuidv7 } from '#base/id.ts';
import { makeCluster, nodeBody } from '#test/api/cluster-support.ts';
import { type Answer, useApi } from '#test/api/test-api.ts';

const api = useApi();
const cardsPath = '/v1/billing/rate-cards';
const load = (csv: string, more: object = { retroactive: true }, path = cardsPath): Promise<Answer> =>
  api().ask(`${path}/import`, { body: { csv, ...more } });
const cardsOf = async (
  profile: string,
): Promise<{ gpu_hour: string; effective_from: string; effective_to: string }[]> =>
  (await api().ask(`${cardsPath}?hardware_profile=${profile}`)).body.data;

describe('an import of rates', () => {
  it('adds all rows in order, each ending the one before, and records them in the audit log', async () => {
    const profile = `p-${uuidv7()}`;
    const rows = ['2026-01-01,1.5,', '2026-02-01,"2.5",', '2026-03-01,,0.1'].map((row) => `${profile},usd,${row}`);
    const csv = `\uFEFFhardware_profile,currency,effective_from,gpu_hour,node_hour\r\n${rows.join('\r\n')}\r\n\r\n`;
    const { status, body } = await load(csv);
    expect([status, body.data.length, body.data[0].currency]).toEqual([201, 3, 'USD']);
    const cards = await cardsOf(profile);
    expect(body.data.toReversed()).toEqual(cards);
    expect(cards.map((card) => [card.gpu_hour, card.effective_from, card.effective_to])).toEqual([
      [null, '2026-03-01T00:00:00.000Z', null],
      ['2.5', '2026-02-01T00:00:00.000Z', '2026-03-01T00:00:00.000Z'],
      ['1.5', '2026-01-01T00:00:00.000Z', '2026-02-01T00:00:00.000Z'],
    ]);
    const audit = (await api().ask(`/v1/audit?target_id=${body.data[0].id}`)).body.data;
    expect(audit.map(({ action }: { action: string }) => action).toSorted()).toEqual([
      'rate_card.created',
      'rate_card.ended',
    ]);
  });

  it('adds nothing if one row overlaps, and names its line', async () => {
    const profile = `p-${uuidv7()}`;
    const csv = `hardware_profile,currency,gpu_hour,effective_from\n${profile},USD,1,2026-01-01\n\n${profile},USD,2,2026-01-01\n`;
    const { status, body } = await load(csv);
    expect([status, body.error.message]).toEqual([
      409,
      expect.stringMatching(/^Line 4: The rate card rate_\w+ is in effect/),
    ]);
    expect(await cardsOf(profile)).toEqual([]);
  });

  it('names the lines of all invalid rows', async () => {
    const csv = 'hardware_profile,currency,gpu_hour\na,USD,x\nb,XXX,1\nc,USD,\nd,USD,1,2\n';
    const { status, body } = await load(csv);
    expect(status).toBe(400);
    const fields = body.error.details.map(({ field }: { field: string }) => field);
    expect(fields.toSorted()).toEqual(['csv.2.gpu_hour', 'csv.3.currency', 'csv.4.gpu_hour', 'csv.5']);
    expect(body.error.details[0].message).toMatch(/^on line 2 must be a plain decimal/);
  });

  it.each([
    ['', 'csv.1', 'must be a header'],
    ['hardware_profile,currency,gpu_hour\n', 'csv.1', 'must be a header'],
    ['profile,currency,gpu_hour\na,USD,1\n', 'csv.1', 'unknown column'],
    ['hardware_profile,currency,gpu_hour,gpu_hour\na,USD,1,2\n', 'csv.1', 'gpu_hour twice'],
    ['hardware_profile,currency,gpu_hour\na,USD,"1\n', 'csv.2', 'quote'],
    ['hardware_profile,currency,gpu_hour\na,U"SD,1\n', 'csv.2', 'quote'],
  ])('rejects %j', async (csv, field, text) => {
    const { status, body } = await load(csv);
    expect([status, body.error.details[0]]).toEqual([400, { field, message: expect.stringContaining(text) }]);
  });

  it('rejects the past without retroactive, and more than 1000 rows', async () => {
    const past = await load('hardware_profile,currency,gpu_hour,effective_from\na,USD,1,2020-01-01\n', {});
    expect(past.body.error.details[0]).toMatchObject({
      field: 'csv.2.effective_from',
      message: expect.stringContaining('on line 2 is in the past'),
    });
    const many = Array.from({ length: 1001 }, (_, index) => `p${index},USD,1`).join('\n');
    const { status, body } = await load(`hardware_profile,currency,gpu_hour\n${many}`);
    expect([status, body.error.details[0].field]).toEqual([400, 'csv.1002']);
  });

  it('adds conversion rates', async () => {
    const csv = 'from,to,rate,effective_from\nUSD,NOK,10.5,2026-01-01\nUSD,NOK,10.6,2026-02-01\n';
    const path = '/v1/billing/conversion-rates';
    expect((await load(csv, { retroactive: true }, path)).status).toBe(201);
    const { data } = (await api().ask(`${path}?from=USD&to=NOK`)).body;
    expect(data.map(({ rate }: { rate: string }) => rate)).toEqual(['10.6', '10.5']);
    expect((await load('from,to,rate\nUSD,USD,1\n', {}, path)).body.error.details[0].field).toBe('csv.2.to');
  });
});

describe('a node', () => {
  it('is marked while no rate card prices its profile', async () => {
    const profile = `p-${uuidv7()}`;
    const { id, nodes } = await makeCluster(api(), { nodes: [nodeBody('n', { hardware_profile: profile })] });
    expect(nodes[0].priced).toBe(false);
    expect((await api().ask(`/v1/clusters/${id}/nodes/n/allocate`, { body: {} })).body.node.priced).toBe(false);
    await load(`hardware_profile,currency,gpu_hour\n${profile},USD,1\n`, {});
    expect((await api().ask(`/v1/clusters/${id}`)).body.nodes[0].priced).toBe(true);
  });
});
