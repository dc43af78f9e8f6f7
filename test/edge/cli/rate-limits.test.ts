import { expect, it } from 'vitest';
import { useApi } from '#test/api/test-api.ts';
import { say } from '#test/cli/in-process.ts';

const api = useApi();
const run = (args: readonly string[], key: string) => say(['projects', 'limits', ...args], { url: api().url, key });

async function open() {
  const { key } = await api().organization();
  const [{ name }] = (await api().ask('/v1/projects', { key })).body.data;
  return { key, name };
}

it('headgate projects limits rejects an invalid limit, a missing model and an unknown model', async () => {
  const { key, name } = await open();
  expect((await run([name, '--requests-per-day', '5'], key)).stderr).toContain('the model to limit is missing');
  expect((await run([name, 'model-a', '--requests-per-day', 'many'], key)).stderr).toContain(
    'must be a number, or none',
  );
  expect((await run([name, 'model-a', '--requests-per-day', '0'], key)).stderr).toContain('max_requests_per_1_day');
  expect((await run([name, 'model-c', '--requests-per-day', '5'], key)).stderr).toContain('no such rate limit');
  expect((await run(['none'], key)).stderr).toContain('"headgate projects ls"');
});

it('headgate projects limits sets the limits of a model, lists all, and removes them', async () => {
  const { key, name } = await open();
  const set = await run([name, 'model-b', '--requests-per-minute', '60', '--tokens-per-minute', '100000'], key);
  expect(set.stdout).toMatch(/^model-b +60 +100000 +-$/m);
  const listed = await run([name], key);
  expect(listed.stdout).toMatch(/^MODEL +REQUESTS\/MIN +TOKENS\/MIN +REQUESTS\/DAY$/m);
  expect(listed.stdout).toMatch(/^model-a +- +- +-$/m);
  expect(listed.stdout).toMatch(/^model-b +60 +100000 +-$/m);
  const one = JSON.parse((await run([name, 'model-b', '--json'], key)).stdout);
  expect(one.data).toMatchObject([{ object: 'project.rate_limit', id: 'rl-model-b', max_requests_per_1_minute: 60 }]);
  const taken = await run([name, 'model-b', '--requests-per-minute', 'none', '--json'], key);
  expect(JSON.parse(taken.stdout)).toMatchObject({ max_requests_per_1_minute: null, max_tokens_per_1_minute: 100000 });
});
