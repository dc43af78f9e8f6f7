import { describe, expect, it } from 'vitest';
import { useApi } from '#test/api/test-api.ts';
import { say } from '#test/cli/in-process.ts';

const api = useApi();

describe('headgate keys show', () => {
  it('shows the key of the login, without its secret', async () => {
    const { body: key } = await api().ask('/v1/keys', { body: { name: 'laptop' } });
    const place = { url: api().url, key: key.secret };
    const { code, stdout } = await say(['keys', 'show'], place);
    expect(code).toBe(0);
    expect(stdout).toMatch(/^name: laptop$/m);
    expect(stdout).toMatch(/^ {2}requests_per_minute:\n {4}limit: 60$/m);
    expect(stdout).not.toContain(key.secret);
    const json = JSON.parse((await say(['keys', 'show', '--json'], place)).stdout);
    expect(json).toEqual((await api().ask('/v1/key', { key: key.secret })).body);
    expect((await say(['keys', 'show', key.id], place)).code).toBe(2);
  });
});
