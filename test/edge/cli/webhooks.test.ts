import { describe, expect, it } from 'vitest';
import { useApi } from '#test/api/test-api.ts';
import { say } from '#test/cli/in-process.ts';

const api = useApi();
const url = 'https://hooks.example/in';

describe('headgate webhooks', () => {
  it('names mistakes, and lists the webhooks when a name is unknown', async () => {
    const { key } = await api().organization();
    const run = (...args: readonly string[]) => say(['webhooks', ...args], { url: api().url, key });
    expect((await run('ls')).stdout).toContain('no webhooks; create one with "headgate webhooks create URL"');
    expect(await run('create', 'http://hooks.example/in')).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('https://'),
    });
    expect((await run('create', url, '--event', 'wallet.lost')).code).toBe(1);
    expect((await run('test', 'wh_none')).stderr).toContain('"headgate webhooks ls" lists the webhooks');
    await run('create', url);
    expect((await run('edit', url)).stderr).toContain('nothing to change');
    expect((await run('edit', url, '--on', '--off')).code).toBe(2);
    expect((await run('rm', url)).code).toBe(2);
    await run('create', url);
    expect((await run('test', url)).stderr).toContain('several webhooks have this address');
  });

  it('creates a webhook, shows its secret once, tests it, resends, rotates and deletes it', async () => {
    const { key } = await api().organization();
    const run = (...args: readonly string[]) => say(['webhooks', ...args], { url: api().url, key });
    const made = await run(
      'create',
      url,
      '--event',
      'budget.exceeded',
      '--event',
      'budget.reached',
      '--description',
      'Pager',
    );
    const secret = /whsec_\S+/.exec(made.stdout)?.[0] ?? '';
    const id = /wh_[0-9a-f]{32}/.exec(made.stdout)?.[0] ?? '';
    expect([made.code, secret.length]).toEqual([0, 50]);
    const listed = await run('ls');
    expect(listed.stdout).toMatch(
      new RegExp(`^${id} +https://hooks.example/in +budget.exceeded,budget.reached +on`, 'm'),
    );
    expect(listed.stdout).not.toContain('whsec_');
    expect((await run('test', url)).stdout).toContain('webhook.test evt_');
    const sent = JSON.parse((await run('deliveries', id, '--json')).stdout) as { data: { id: string }[] };
    expect(sent.data).toMatchObject([{ type: 'webhook.test', status: 'pending' }]);
    expect((await run('deliveries', id)).stdout).toContain('pending');
    expect((await run('replay', id, sent.data[0]?.id ?? '')).code).toBe(0);
    const rotated = await run('rotate', url, '--grace-seconds', '60');
    expect(rotated.stdout).toContain('the former secret also signs until');
    expect(rotated.stdout).not.toContain(secret);
    expect((await run('edit', url, '--event', 'all', '--off')).stdout).toContain('all  off');
    expect((await run('rm', id, '--yes')).stdout).toBe(`${id}: deleted\n`);
    expect((await run('ls', '--json')).stdout).toContain('[]');
  });
});
