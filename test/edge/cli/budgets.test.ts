import { describe, expect, it } from 'vitest';
import { useApi } from '#test/api/test-api.ts';
import { say } from '#test/cli/in-process.ts';

const api = useApi();
const run = (args: readonly string[], key: string) => say(args, { url: api().url, key });

describe('headgate budgets', () => {
  it('rejects a missing scope or several, and says where to list budgets', async () => {
    const { key } = await api().organization();
    expect((await run(['budgets', 'create', '5'], key)).stderr).toContain('give exactly one of --key, --project');
    const both = ['budgets', 'create', '5', '--user', 'anna', '--each-user'];
    expect((await run(both, key)).stderr).toContain('give exactly one of --key, --project');
    expect((await run(['budgets', 'create', '5', '--each-user', '--alerts', 'some'], key)).stderr).toContain('80,100');
    expect((await run(['budgets', 'create', 'five', '--each-user'], key)).stderr).toContain('amount');
    expect((await run(['budgets', 'edit', 'x'], key)).stderr).toContain('nothing to change; give --amount');
    expect((await run(['budgets', 'edit', 'x', '--amount', '5'], key)).stderr).toContain('"headgate budgets ls"');
    expect((await run(['budgets', 'create', '5', '--key', 'none'], key)).stderr).toContain('"headgate keys ls"');
    expect(await run(['budgets', 'ls'], key)).toMatchObject({
      stdout: expect.stringContaining('no budgets; create one'),
    });
  });

  it('creates a budget of models for its life, raises and resets it', async () => {
    const { key } = await api().organization();
    const models = ['--period', 'total', '--models', 'model-b,model-a', '--opening-spent', '2'];
    const { stdout } = await run(['budgets', 'create', '5', '--user', 'anna', ...models], key);
    const id = /budget_[0-9a-f]{32}/.exec(stdout)?.[0] ?? '';
    expect(stdout).toBe(`${id}: total hard budget for user anna and the models model-a model-b, 5 USD\n`);
    expect((await run(['budgets', 'ls'], key)).stdout).toMatch(/total +hard +model-a model-b +5 +2 +3 +never/);
    expect((await run(['budgets', 'raise', id, '3'], key)).stderr).toContain('give an amount and --until');
    expect((await run(['budgets', 'raise', id, '3', '--until', 'soon'], key)).stderr).toContain('--until must be');
    const raised = await run(['budgets', 'raise', id, '3', '--until', '2999-01-31'], key);
    expect(raised.stdout).toContain('5 + 3 USD until 2999-01-31');
    expect((await run(['budgets', 'raise', id, 'none'], key)).stdout).toContain('5 USD\n');
    expect((await run(['budgets', 'reset', id], key)).stderr).toContain('add --yes');
    expect((await run(['budgets', 'reset', id, '--yes'], key)).stdout).toBe(`${id}: reset, 0 of 5 USD spent\n`);
    expect((await api().ask(`/v1/budgets/${id}`, { key })).body).toMatchObject({ spent: '0', remaining: '5' });
  });

  it('creates, lists, changes and deletes budgets', async () => {
    const { key } = await api().organization();
    const made = await run(['budgets', 'create', '5', '--each-user', '--period', 'daily', '--alerts', '50'], key);
    const id = /budget_[0-9a-f]{32}/.exec(made.stdout)?.[0] ?? '';
    expect(made.stdout).toBe(`${id}: daily hard budget for each user, 5 USD\n`);
    const project = (await api().ask('/v1/projects', { key })).body.data[0];
    expect((await run(['budgets', 'create', '9', '--project', project.name], key)).stdout).toContain(
      `monthly hard budget for ${project.id}, 9 USD`,
    );
    const { body } = await api().ask('/v1/keys', { key, body: { name: 'app' } });
    expect((await run(['budgets', 'create', '1', '--key', 'app'], key)).stdout).toContain(
      `budget for ${body.id}, 1 USD`,
    );
    expect((await run(['budgets', 'ls'], key)).stdout).toMatch(
      new RegExp(`^${id} +each user +daily +hard +all +5 +- +- .* 50%`, 'm'),
    );
    const edited = await run(['budgets', 'edit', id, '--amount', '7.5', '--mode', 'soft', '--alerts', 'none'], key);
    expect(edited.stdout).toContain('daily soft budget for each user, 7.5 USD');
    expect((await api().ask(`/v1/budgets/${id}`, { key })).body).toMatchObject({ alert_percents: [] });
    expect((await run(['budgets', 'rm', id], key)).stderr).toContain('nothing was deleted; add --yes');
    expect((await run(['budgets', 'rm', id, '--yes'], key)).stdout).toBe(`${id}: deleted\n`);
    expect((await api().ask(`/v1/budgets/${id}`, { key })).status).toBe(404);
  });
});
