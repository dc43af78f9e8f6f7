import { describe, expect, it } from 'vitest';
import { parseId, uuidv7 } from '#base/id.ts';
import { readCsv } from '#test/costs/csv.ts';
import { makeCluster, newName, nodeBody } from '#test/api/cluster-support.ts';
import { useApi } from '#test/api/test-api.ts';
import { type CliOptions, runCli } from '#test/cli/run-cli.ts';

const api = useApi();

const run = (args: readonly string[], key = api().admin, options: CliOptions = {}) =>
  runCli(['costs', ...args], { ...options, env: { HEADGATE_URL: api().url, HEADGATE_API_KEY: key } });

/** Two hours of a node that is priced, and of one that is not. */
async function useNodes(id: string): Promise<void> {
  const { costs } = api().billing;
  const organization = { id: parseId('org', id) ?? '', name: 'Water Works' };
  const ref = { id: `cluster_${uuidv7()}`, name: 'pumps\u001b[2J', organization };
  const [startMs, endMs] = [Date.UTC(2026, 2, 10, 10), Date.UTC(2026, 2, 10, 12)];
  const nodes = ['h100', 'unrated'].map((hardwareProfile) => {
    return { nodeId: uuidv7(), generation: 1, nodeName: 'node', hardwareProfile, gpus: 8, atMs: startMs };
  });
  await api().db.orm.transaction(async (tx) => {
    await costs.allocate(tx, ref, nodes);
    const ends = nodes.map(({ nodeId, generation }) => ({ nodeId, generation, atMs: endMs, estimated: true }));
    await costs.release(tx, ref.id, ends);
  });
}

describe('headgate costs --step and --group-by', () => {
  it('shows each step with its groups, and the total', async () => {
    const own = await api().organization();
    await useNodes(own.id);
    const window = ['--from', '2026-03-10', '--to', '2026-03-12'];
    const { code, stdout, stderr } = await run([...window, '--step', '1d', '--group-by', 'hardware_profile'], own.key);
    expect([code, stderr]).toEqual([0, '']);
    const lines = stdout.split('\n').map((line) => line.trim().split(/ {2,}/));
    expect(lines.slice(1, 5).map((line) => line.slice(0, 4))).toEqual([
      ['2026-03-10 00:00', 'h100', '2', '16'],
      ['2026-03-10 00:00', 'unrated', '2', '16'],
      ['2026-03-11 00:00', '-', '0', '0'],
      ['total', '4', '32', expect.any(String)],
    ]);
    const json = await run([...window, '--group-by', 'label:team', '--json'], own.key);
    expect(JSON.parse(json.stdout).groups).toMatchObject([{ value: null, node_hours: 4 }]);
    expect(await run([...window, '--group-by', 'team'], own.key)).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('group_by: must be organization, cluster, node'),
    });
    expect(await run([...window, '--step', '1d', '--csv'])).toMatchObject({ code: 2 });
  });
});

describe('headgate costs', () => {
  it("rejects contradictory options, and shows the gateway's errors", async () => {
    expect(await run(['--csv', '--json'])).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('give --csv or --json, not both'),
    });
    expect(await run(['--tz', 'Mars'])).toMatchObject({ code: 2, stderr: expect.stringContaining('--tz must be') });
    expect(await run(['october'])).toMatchObject({ code: 2 });
    const month = await run(['--month', 'October']);
    expect(month).toMatchObject({ code: 1, stdout: '' });
    expect(month.stderr).toContain('month: must be a month such as 2026-03');
    const other = await run(['--org', `org_${'0'.repeat(32)}`]);
    expect(other).toMatchObject({
      code: 1,
      stderr: expect.stringContaining(
        'There is no such organization; "headgate orgs ls" lists the organizations\n  request ',
      ),
    });
    const csv = await run(['--csv', '--from', '2026-03-01']);
    expect(csv).toMatchObject({
      code: 1,
      stdout: '',
      stderr: expect.stringContaining('to: is required together with from'),
    });
  });

  it('shows hours and costs as a table, as JSON and as CSV', async () => {
    const own = await api().organization();
    const card = { hardware_profile: 'h100', currency: 'USD', node_hour: '32.5' };
    const dates = { effective_from: '2020-01-01', retroactive: true };
    await api().ask('/v1/billing/rate-cards', { body: { ...card, ...dates } });
    await useNodes(own.id);
    const text = await run(['--month', '2026-03'], own.key);
    expect(text).toMatchObject({ code: 0, stderr: '' });
    const lines = text.stdout.split('\n');
    expect(lines[0]).toMatch(/^2026-03-01 00:00 to 2026-04-01 00:00 \(UTC\), as of /);
    expect(lines[2]).toMatch(/^Water Works +pumps.* +h100 +2 +16 +65\.00 USD +end estimated$/);
    expect(lines[3]).toMatch(/ unrated +2 +16 +- +no price, end estimated$/);
    expect(lines[4]).toBe('total: 4 node-hours, 32 GPU-hours, 65.00 USD');
    expect(lines[5]).toBe(
      'warning: unrated has hours without a price, which are counted at no cost; a platform administrator adds a rate card: headgate rate-cards add',
    );
    // A name that others chose moves no cursor.
    expect(text.stdout).not.toContain('\u001b[2J');
    const json = await run(['--from', '2026-03-10', '--to', '2026-03-11', '--tz', 'Europe/Berlin', '--json'], own.key);
    expect(JSON.parse(json.stdout)).toMatchObject({ window: { tz: 'Europe/Berlin' }, totals: { node_hours: 4 } });
    const csv = await run(['--month', '2026-03', '--csv', '--org', own.id]);
    expect(readCsv(csv.stdout).map((row) => row['BilledCost'])).toEqual(['65.00', '0']);
  });

  it('covers the current month by default', async () => {
    const { key } = await api().organization();
    const { stdout, code } = await run(['--tz', 'Pacific/Auckland'], key);
    expect(code).toBe(0);
    expect(stdout).toContain('(Pacific/Auckland)');
    expect(stdout).toContain('no usage\ntotal: 0 node-hours, 0 GPU-hours, no cost\n');
    expect(stdout).not.toContain('allocate');
  });

  it('names nodes without allocated hours when nothing was used, and how to start metering', async () => {
    const [own, other] = [await api().organization(), await api().organization()];
    const [name, othersName] = [newName(), newName()];
    const nodes = [nodeBody('n-1'), nodeBody('n-2')];
    const { id } = await makeCluster(api(), { name, organization_id: own.id, nodes });
    await makeCluster(api(), { name: othersName, organization_id: other.id });
    const hint =
      `not allocated: 2 of 2 nodes of ${name}; metering of a node starts when a platform administrator allocates it: ` +
      'headgate clusters allocate CLUSTER NODE\n';
    for (const { stdout, code } of [await run([], own.key), await run(['--org', own.id])]) {
      expect(code).toBe(0);
      expect(stdout.endsWith(`total: 0 node-hours, 0 GPU-hours, no cost\n${hint}`), stdout).toBe(true);
      expect(stdout).not.toContain(othersName);
    }
    expect((await run(['--json'], own.key)).stdout).not.toContain('allocate CLUSTER');
    // With hours, the page reports them, and nothing of what could be.
    await api().ask(`/v1/clusters/${id}/nodes/n-1/allocate`, {
      body: { at: new Date(Date.now() - 3_600_000).toISOString() },
    });
    const used = (await run([], own.key)).stdout;
    expect(used).toContain(name);
    expect(used).not.toContain('not allocated');
    expect((await run(['--month', '2020-01'], own.key)).stdout).toContain(`not allocated: 1 of 2 nodes of ${name};`);
  });
});
