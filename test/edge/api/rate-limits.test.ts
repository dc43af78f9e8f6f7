import OpenAI from 'openai';
import { expect, it } from 'vitest';
import { type Body, externalFile, openOrganization, useInference } from '#test/inference/inference-gateway.ts';

/** `client.admin.organization.projects.rateLimits` of the official SDK, asked as it is. */

const names = ['alpha', 'beta', 'gamma'];
const bench = useInference(() => ({
  engines: {
    ...Object.fromEntries(names.map((name) => [name, externalFile(name, 'http://127.0.0.1:1')])),
    off: externalFile('off', 'http://127.0.0.1:1', { lines: ['enabled: false'] }),
  },
}));

async function open() {
  const { id, key } = await openOrganization(bench.gateway, '1');
  const baseURL = `${bench.gateway.url}/v1`;
  const { projects } = new OpenAI({ adminAPIKey: key, apiKey: null, baseURL, maxRetries: 0 }).admin.organization;
  const { id: projectId } = await projects.create({ name: 'Search' });
  const { rateLimits } = projects;
  const set = (rateLimit: string, fields: object) =>
    rateLimits.updateRateLimit(rateLimit, { project_id: projectId, ...fields });
  return { id, key, projects, projectId, rateLimits, set };
}

const unlimitedOf = (model: string) => ({
  object: 'project.rate_limit',
  id: `rl-${model}`,
  model,
  max_requests_per_1_minute: null,
  max_tokens_per_1_minute: null,
  max_requests_per_1_day: null,
});

it.each([
  [{ max_requests_per_1_minute: 0 }, 'max_requests_per_1_minute', 'null is unlimited'],
  [{ max_requests_per_1_minute: 2 ** 31 }, 'max_requests_per_1_minute', 'at most'],
  [{ max_tokens_per_1_minute: 1.5 }, 'max_tokens_per_1_minute', ''],
  [{ max_requests_per_1_day: '5' }, 'max_requests_per_1_day', ''],
  [{ max_images_per_1_minute: 5 }, 'max_images_per_1_minute', 'must be null: Headgate serves no image models'],
  [
    { max_audio_megabytes_per_1_minute: 5 },
    'max_audio_megabytes_per_1_minute',
    'must be null: Headgate serves no audio models',
  ],
  [{ batch_1_day_max_input_tokens: 5 }, 'batch_1_day_max_input_tokens', 'requests of batches count against'],
  [{ max_requests_per_1_hour: 5 }, 'max_requests_per_1_hour', ''],
])('returns 400 with the field for %j, and changes nothing', async (fields, param, sentence) => {
  const { set, rateLimits, projectId } = await open();
  const refused: unknown = await set('rl-alpha', {
    ...fields,
    ...(param !== 'max_requests_per_1_day' && { max_requests_per_1_day: 9 }),
  }).catch((error: unknown) => error);
  expect(refused).toMatchObject({ status: 400, param, message: expect.stringContaining(sentence) });
  expect((await rateLimits.listRateLimits(projectId)).data[0]).toEqual(unlimitedOf('alpha'));
});

it("rejects models outside the project, other organizations' projects and invalid cursors", async () => {
  const [own, other] = [await open(), await open()];
  for (const rateLimit of ['rl-none', 'rl-off', 'alpha', 'rl-']) {
    await expect(own.set(rateLimit, { max_requests_per_1_minute: 1 })).rejects.toMatchObject({ status: 404 });
  }
  const theirs = { project_id: other.projectId, max_requests_per_1_minute: 1 };
  await expect(own.rateLimits.updateRateLimit('rl-alpha', theirs)).rejects.toMatchObject({ status: 404 });
  await expect(own.rateLimits.listRateLimits(other.projectId)).rejects.toMatchObject({ status: 404 });
  await expect(own.rateLimits.listRateLimits(own.projectId, { after: 'rl-none' })).rejects.toMatchObject({
    status: 400,
    param: 'after',
  });
  const body = { models: ['beta'] };
  await bench.gateway.request(`/v1/organizations/${own.id}`, { method: 'PATCH', body });
  expect((await own.rateLimits.listRateLimits(own.projectId)).data).toEqual([unlimitedOf('beta')]);
  await expect(own.set('rl-alpha', { max_requests_per_1_minute: 1 })).rejects.toMatchObject({ status: 404 });
});

it('rejects keys that may not change the limits of keys', async () => {
  const { key, projectId } = await open();
  const body = { name: 'app', project_id: projectId };
  const { secret }: Body = await (await bench.gateway.request('/v1/keys', { key, body })).json();
  const path = `/v1/organization/projects/${projectId}/rate_limits`;
  expect((await bench.gateway.request(path, { key: secret })).status).toBe(403);
  expect((await bench.gateway.request(`${path}/rl-alpha`, { key: secret, body: {} })).status).toBe(403);
});

it('lists each allowed model once, in pages, in both directions', async () => {
  const { rateLimits, projectId } = await open();
  const seen: string[] = [];
  for await (const one of rateLimits.listRateLimits(projectId, { limit: 2 })) seen.push(one.model);
  expect(seen).toEqual(names);
  const last = await rateLimits.listRateLimits(projectId, { after: 'rl-beta' });
  expect(last.data).toEqual([unlimitedOf('gamma')]);
  const before = await rateLimits.listRateLimits(projectId, { before: 'rl-gamma', limit: 1 });
  expect([before.data.map(({ id }) => id), before.has_more]).toEqual([['rl-beta'], true]);
});

it('sets, changes and removes limits for each project separately, with audit entries', async () => {
  const { key, set, rateLimits, projectId, projects } = await open();
  const elsewhere = await projects.create({ name: 'Elsewhere' });
  const limited = { ...unlimitedOf('beta'), max_requests_per_1_minute: 60, max_tokens_per_1_minute: 10 ** 12 };
  expect(await set('rl-beta', { max_requests_per_1_minute: 60, max_tokens_per_1_minute: 10 ** 12 })).toEqual(limited);
  expect(await set('rl-beta', {})).toEqual(limited);
  expect(await set('rl-beta', { max_requests_per_1_day: 5, max_images_per_1_minute: null })).toEqual({
    ...limited,
    max_requests_per_1_day: 5,
  });
  expect((await rateLimits.listRateLimits(projectId)).data[1]).toEqual({ ...limited, max_requests_per_1_day: 5 });
  expect((await rateLimits.listRateLimits(elsewhere.id)).data[1]).toEqual(unlimitedOf('beta'));
  const none = { max_requests_per_1_minute: null, max_tokens_per_1_minute: null, max_requests_per_1_day: null };
  expect(await set('rl-beta', none)).toEqual(unlimitedOf('beta'));
  const query = `target_id=${projectId}&action=rate_limit.changed`;
  const { data }: Body = await (await bench.gateway.request(`/v1/audit?${query}`, { key })).json();
  expect(
    data.map(({ before, after }: Body) => [before.max_requests_per_1_minute, after.max_requests_per_1_day]),
  ).toEqual([
    [60, null],
    [60, 5],
    [null, null],
  ]);
  expect(data[0].after).toEqual({ model: 'beta', ...none });
});
