import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { makeCluster, newName } from '#test/api/cluster-support.ts';
import { useApi } from '#test/api/test-api.ts';
import { runCli, useFolders } from '#test/cli/run-cli.ts';

const api = useApi();
const folders = useFolders();
const headgate = (...args: string[]) =>
  runCli(args, { env: { HEADGATE_URL: api().url, HEADGATE_API_KEY: api().admin } });

describe('headgate rate-cards and conversion-rates', () => {
  it('add, list and end rate cards', async () => {
    const added = await headgate('rate-cards', 'add', 'a100', '--currency', 'USD', '--gpu-hour', '1.5');
    expect(added).toMatchObject({ code: 0, stderr: '', stdout: expect.stringMatching(/^rate_\w+: from \S+Z\n$/) });
    const next = await headgate(
      'rate-cards',
      'add',
      'a100',
      '--currency',
      'USD',
      '--gpu-hour',
      '1.6',
      '--start',
      '2099-01-01',
    );
    expect(next.stdout).toContain('; ended rate_');
    const { stdout } = await headgate('rate-cards', 'ls', '--profile', 'a100', '--wide');
    expect(stdout).toMatch(/a100 +USD +- +1\.6 +2099-01-01/);
    const [id = ''] = next.stdout.split(':');
    expect((await headgate('rate-cards', 'end', id)).stdout).toContain(`${id}: from 2099`);
    expect(await headgate('rate-cards', 'add', 'a100')).toMatchObject({ code: 2 });
  });

  it('import CSV files, and show the line of an error', async () => {
    const file = join(folders(), 'rates.csv');
    writeFileSync(file, 'from,to,rate,effective_from\nUSD,SEK,10.1,2026-01-01\nUSD,SEK,10.2,2026-02-01\n');
    expect(await headgate('conversion-rates', 'import', file)).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('on line 2 is in the past'),
    });
    expect((await headgate('conversion-rates', 'import', file, '--retroactive')).stdout).toBe(
      '2 conversion rates added\n',
    );
    expect((await headgate('conversion-rates', 'ls', '--from', 'USD', '--to', 'SEK')).stdout).toMatch(/10\.2[^]*10\.1/);
    expect((await headgate('conversion-rates', 'add', 'USD', 'DKK', '6.9')).stdout).toMatch(/^conv_\w+: from /);
  });

  it('set, show and remove the cost budget of an organization', async () => {
    const { id } = await api().organization();
    expect((await headgate('cost-budget', 'set', '100', '--org', id)).stderr).toContain(
      'the organization has no billing currency',
    );
    expect(await headgate('cost-budget', 'set', '100', '--alerts', 'x')).toMatchObject({ code: 2 });
    const shown = 'budget: 100 USD a month, alerts at 50, 90 %\n';
    const options = ['--currency', 'USD', '--alerts', '50,90', '--org', id];
    expect((await headgate('cost-budget', 'set', '100', ...options)).stdout).toContain(shown);
    const text = (await headgate('cost-budget', 'show', '--org', id)).stdout;
    expect(text).toMatch(/^budget: 100 USD[^]*: 0 \(0 % of the budget\)\nforecast: 0 \(0 % of the budget\), if all/);
    expect((await headgate('cost-budget', 'rm', '--org', id)).stdout).toContain('budget: none\n');
  });

  it('warn of a node without a rate card', async () => {
    const name = newName();
    await makeCluster(api(), { name, nodes: [] });
    const fields = ['--address', '10.0.0.9', '--profile', 'unheard-of'];
    const added = await headgate('clusters', 'add-node', name, 'n-1', ...fields);
    expect(added).toMatchObject({ code: 0, stderr: expect.stringContaining('no rate card prices unheard-of') });
    expect((await headgate('clusters', 'allocate', name, 'n-1')).stderr).toContain('no rate card prices unheard-of');
  });
});
