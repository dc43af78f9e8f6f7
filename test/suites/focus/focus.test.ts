import { execFile } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { parseId } from '#base/id.ts';
import { useApi } from '#test/api/test-api.ts';

/** The cost export, as the FinOps Foundation's own validator reads it. */

const api = useApi();
const run = promisify(execFile);
let work = '';
beforeAll(async () => {
  work = await mkdtemp(join(tmpdir(), 'hg-focus-'));
});
afterAll(() => rm(work, { recursive: true, force: true }));

/** Nodes with and without a price, labels, a conversion and a replica; prices that change meanwhile. */
async function makeCosts(): Promise<string> {
  const organization = await api().organization('Acme, "Sons" & Co');
  const dates = { effective_from: '2020-01-01', retroactive: true };
  const card = (profile: string, more: object) =>
    api().ask('/v1/billing/rate-cards', { body: { hardware_profile: profile, currency: 'USD', ...dates, ...more } });
  await card('both', { node_hour: '1.23456789', gpu_hour: '2.4899999999' });
  await card('node', { node_hour: '0.3333333333', effective_to: '2026-03-02' });
  await card('node', { node_hour: '0.7', effective_from: '2026-03-02' });
  await card('h100', { gpu_hour: '3.1' });
  await api().ask('/v1/billing/conversion-rates', { body: { from: 'USD', to: 'EUR', rate: '0.92345', ...dates } });
  const currency = { method: 'PATCH', key: organization.key, body: { currency: 'EUR' } };
  await api().ask(`/v1/orgs/${organization.id}/billing-currency`, currency);
  const nodes = ['both', 'node', 'unrated'].map((profile, index) => {
    const labels: Record<string, string> = index === 0 ? { 'example.com/team': 'ml', spot: '' } : {};
    return { name: `n${index}`, address: '10.0.0.7', hardware_profile: profile, gpus: 8 * index, labels };
  });
  nodes.push({ name: 'n3', address: '10.0.0.8', hardware_profile: 'both', gpus: 7, labels: { env: 'prod' } });
  const body = { name: 'research', organization_id: organization.id, labels: { team: 'ops' }, nodes };
  const cluster = (await api().ask('/v1/clusters', { body })).body;
  for (const { name } of nodes) {
    const path = `/v1/clusters/${cluster.id}/nodes/${name}`;
    await api().ask(`${path}/allocate`, { body: { at: '2026-03-01T10:07:11.123Z' } });
    await api().ask(`${path}/release`, { body: { at: '2026-03-04T23:41:59.001Z' } });
  }
  const owner = { id: parseId('org', organization.id) ?? '', name: 'Acme' };
  const [startedMs, endedMs] = [Date.UTC(2026, 2, 3, 1, 2, 3), Date.UTC(2026, 2, 3, 9, 8, 7)];
  const replica = { runId: 'r', replicaName: 'r', engineId: 'chat', engineName: 'chat', organization: owner };
  const shape = {
    hardwareProfile: 'h100',
    gpus: 1,
    gpuShare: 12,
    startedMs,
    readyMs: null,
    endedMs,
    endEstimated: false,
  };
  await api().billing.costs.carryReplicaRuns([{ ...replica, ...shape }]);
  return (await api().ask('/v1/billing/costs.csv?month=2026-03')).body;
}

/** Columns of FOCUS 1.0 that version 1.0.0 of the validator looks for under the names of their draft. */
const draftNames: Readonly<Record<string, string>> = {
  InvoiceIssuerName: 'InvoiceIssuer',
  ProviderName: 'Provider',
  PublisherName: 'Publisher',
  ResourceId: 'ResourceID',
};

function withDraftNames(csv: string): string {
  const end = csv.indexOf('\r\n');
  const names = csv.slice(0, end).split(',');
  return names.map((name) => draftNames[name] ?? name).join(',') + csv.slice(end);
}

/** Parts of FOCUS 1.2 that Headgate supports; columns of other parts may be absent. */
const criteria = [
  'ACCOUNT_NAMING_SUPPORTED',
  'BILLING_BASED_ON_PROVISIONED_RESOURCES_SUPPORTED',
  'MULTIPLE_BILLING_ACCOUNT_TYPES_SUPPORTED',
  'MULTIPLE_PRICING_CATEGORIES_SUPPORTED',
  'NEGOTIATED_PRICING_SUPPORTED',
  'PRICING_BILLING_CURRENCY_DIFFERENCES_SUPPORTED',
  'PUBLIC_PRICE_LIST_SUPPORTED',
  'RESOURCE_TYPE_ASSIGNMENT_SUPPORTED',
  'TAGGING_SUPPORTED',
  'UNIT_PRICING_SUPPORTED',
  'USAGE_MEASUREMENT_SUPPORTED',
].join(',');

/**
 * Rules of version 1.0.0 of the validator that fail for every file: its package lacks the list of currencies, and a rule
 * reads a column that FOCUS 1.0 does not have.
 */
const brokenRules = ['BillingCurrency_IsCurrencyCode', 'SkuPriceId_Nullable'];

/** A rule for charges without an invoice, of which every charge has one: either this rule or its neighbor fails. */
const alternative = 'InvoiceId-C-004-C';

async function validate(csv: string): Promise<readonly string[]> {
  const file = join(work, 'costs.csv');
  const { stdout: help } = await run('focus-validator', ['--help']);
  const knowsNewest = help.includes('--applicability-criteria');
  await writeFile(file, knowsNewest ? csv : withDraftNames(csv));
  const version = knowsNewest
    ? ['--validate-version', '1.2', '--block-download', '--applicability-criteria', criteria]
    : ['--validate-version', '1.0'];
  // The program ends with 0 whatever it finds: failures are in what it prints.
  const args = ['--data-file', file, ...version];
  const { stdout } = await run('focus-validator', args, { cwd: work, maxBuffer: 16_777_216 });
  if (knowsNewest) {
    if (!/Pass: [1-9]\d\d/.test(stdout)) throw new Error(stdout);
    const failed = [...stdout.matchAll(/^\W*([\w-]+): FAIL/gm)].map(([, rule = '']) => rule);
    return failed.filter((rule) => rule !== alternative);
  }
  if (!/Errors encountered|Validation succeeded/.test(stdout)) throw new Error(stdout);
  const failed = [...stdout.matchAll(/^(\w+) failed:/gm)].map(([, rule = '']) => rule);
  return failed.filter((rule) => !brokenRules.includes(rule));
}

describe('costs.csv', () => {
  it('passes the validator of the FinOps Foundation', async () => {
    const csv = await makeCosts();
    expect(csv.split('\r\n').length).toBeGreaterThan(8);
    expect(await validate(csv)).toEqual([]);
  });

  it('fails the validator without a mandatory column', async () => {
    const csv = (await makeCosts()).replace('BilledCost', 'x_BilledCost');
    expect((await validate(csv)).join(' ')).toMatch(/BilledCost|CostAndUsage/);
  });
});
