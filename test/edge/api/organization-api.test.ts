import OpenAI from 'openai';
import { beforeAll, describe, expect, it } from 'vitest';
import { formatId, parseId, uuidv7 } from '#base/id.ts';
import { type Body, recordOf, type TestOrganization, useGateway } from '#test/metering/recorded-usage.ts';

/** OpenAI's organization API, asked by the official SDK as it is. */

const hourMs = 3_600_000;
const dayMs = 24 * hourMs;
const start = Date.parse('2026-05-04T00:00:00Z');
const span = { start_time: start / 1000, end_time: (start + 3 * dayMs) / 1000 };

describe("OpenAI's organization API", () => {
  const bench = useGateway();
  let organization: TestOrganization;
  let other: TestOrganization;
  const adminOf = ({ managementKey }: TestOrganization) =>
    new OpenAI({ adminAPIKey: managementKey, apiKey: null, baseURL: `${bench.gateway.url}/v1`, maxRetries: 0 }).admin
      .organization;

  beforeAll(async () => {
    organization = await bench.openOrganization();
    other = await bench.openOrganization();
    const elsewhere = { ...organization, keyId: uuidv7(), projectId: uuidv7() };
    const records = [
      recordOf(organization, start),
      recordOf(organization, start + hourMs, { model: 'big', costPicoUsd: 500_000_000_000n }),
      recordOf(organization, start + hourMs, { model: 'standin-embed' }),
      recordOf(elsewhere, start + 2 * dayMs + hourMs),
      recordOf(other, start, { costPicoUsd: 7_000_000n }),
    ];
    await Promise.all(records.map((record) => bench.metering.settle(record)));
  });

  it.each([
    ['usage/completions', 'start_time', '.'],
    ['usage/completions?start_time=yesterday', 'start_time', 'seconds since the Unix epoch'],
    ['usage/completions?start_time=20&end_time=10', 'end_time', 'after start_time'],
    ['usage/completions?start_time=4000000000', 'start_time', 'in the future'],
    ['usage/images?start_time=4000000000', 'start_time', 'in the future'],
    ['usage/completions?start_time=0&end_time=86400&limit=32', 'limit', 'at most 31'],
    ['usage/completions?start_time=0&bucket_width=1m', 'bucket_width', '1d, 1h'],
    ['usage/completions?start_time=0&page=page_7', 'page', 'not a next_page'],
    ['usage/completions?start_time=0&page=2', 'page', 'next_page'],
    ['usage/embeddings?start_time=0&group_by=batch', 'group_by', 'project_id'],
    ['costs?start_time=0&limit=181', 'limit', 'at most 180'],
    ['costs?start_time=0&models=small', 'models', 'is unknown'],
  ])('returns 400 with the reason for %s', async (path, param, text) => {
    const { error } = await bench.ask(`/v1/organization/${path}`, organization.managementKey, 400);
    expect(error).toMatchObject({ code: 'invalid_request_error', param });
    expect(error.message).toMatch(new RegExp(text));
  });

  it('returns a bucket for each day, with empty results for days without usage', async () => {
    const { data, ...page } = await adminOf(organization).usage.completions(span);
    expect(page).toEqual({ object: 'page', has_more: false, next_page: null });
    const ungrouped = { project_id: null, user_id: null, api_key_id: null, model: null };
    const object = 'organization.usage.completions.result';
    const rest = { ...ungrouped, batch: null, service_tier: null };
    const of = (requests: number) => ({
      object,
      num_model_requests: requests,
      input_tokens: 10 * requests,
      input_cached_tokens: 4 * requests,
      output_tokens: 5 * requests,
      ...rest,
    });
    const day = (n: number) => ({
      object: 'bucket',
      start_time: span.start_time + n * 86_400,
      end_time: span.start_time + (n + 1) * 86_400,
    });
    expect(data).toEqual([
      { ...day(0), results: [of(2)] },
      { ...day(1), results: [] },
      { ...day(2), results: [of(1)] },
    ]);
  });

  it('shows embedding models under embeddings only', async () => {
    const { data } = await adminOf(organization).usage.embeddings({ ...span, group_by: ['model'] });
    expect(data.flatMap(({ results }) => results)).toMatchObject([
      {
        object: 'organization.usage.embeddings.result',
        model: 'standin-embed',
        num_model_requests: 1,
        input_tokens: 10,
      },
    ]);
  });

  it('groups and filters by project, key and model', async () => {
    const { usage } = adminOf(organization);
    const shown = {
      project_id: formatId('proj', organization.projectId),
      api_key_id: formatId('key', organization.keyId),
    };
    const by = await usage.completions({ ...span, group_by: ['project_id', 'api_key_id', 'model'], models: ['big'] });
    expect(by.data.flatMap(({ results }) => results)).toMatchObject([
      { ...shown, model: 'big', num_model_requests: 1 },
    ]);
    const of = async (only: object) =>
      (await usage.completions({ ...span, ...only })).data.flatMap(({ results }) => results);
    expect(await of({ project_ids: [shown.project_id] })).toMatchObject([{ num_model_requests: 2 }]);
    expect(await of({ api_key_ids: [formatId('key', other.keyId), shown.api_key_id] })).toHaveLength(1);
    expect(await of({ api_key_ids: [formatId('key', other.keyId)] })).toEqual([]);
    for (const nothing of [{ project_ids: ['proj_1'] }, { models: ['a\0b', 'BIG'] }, { api_key_ids: ['\0'] }]) {
      expect(await of(nothing)).toEqual([]);
    }
  });

  it("groups and filters by user, including the user's revoked keys", async () => {
    const own = await bench.openOrganization();
    const { keyId } = await bench.makeKey(own);
    const revoked = { ...own, keyId: parseId('key', keyId) ?? '' };
    const ofNobody = { ...own, keyId: uuidv7() };
    await Promise.all([own, revoked, ofNobody].map((who) => bench.metering.settle(recordOf(who, start))));
    const { projects, users, usage } = adminOf(own);
    await projects.apiKeys.delete(keyId, { project_id: formatId('proj', own.projectId) });
    const [user] = (await users.list()).data;
    const user_ids = [user?.id ?? ''];
    const resultsOf = async (asked: object) =>
      (await usage.completions({ ...span, limit: 1, ...asked })).data.flatMap(({ results }) => results);
    const by = await resultsOf({ group_by: ['user_id'] });
    expect(new Map(by.map((one: Body) => [one.user_id, one.num_model_requests]))).toEqual(
      new Map([
        [user?.id, 2],
        [null, 1],
      ]),
    );
    expect(await resultsOf({ user_ids })).toMatchObject([{ num_model_requests: 2, user_id: null }]);
    expect(await resultsOf({ user_ids, api_key_ids: [keyId] })).toMatchObject([{ num_model_requests: 1 }]);
    expect(await resultsOf({ user_ids, api_key_ids: [formatId('key', ofNobody.keyId)] })).toEqual([]);
    expect(await resultsOf({ user_ids: ['user_1'] })).toEqual([]);
    const costs = await usage.costs({ ...span, limit: 1, group_by: ['user_id'] });
    const amounts = costs.data.flatMap(({ results }) => results) as Body[];
    expect(new Map(amounts.map(({ user_id: id, amount }) => [id, amount.value]))).toEqual(
      new Map([
        [user?.id, 6 / 1e6],
        [null, 3 / 1e6],
      ]),
    );
  });

  it('limits the number of requested groups, not the usage beside them', async () => {
    const large = await bench.openOrganization();
    const [last = '', ...models] = Array.from({ length: 20_001 }, (_, i) => `model ${i}`);
    const project = uuidv7();
    const records = models.map((model) => recordOf(large, start, { model }));
    records.push(recordOf({ ...large, projectId: project }, start, { model: last }));
    await Promise.all(records.map((record) => bench.metering.settle(record)));
    const { usage } = adminOf(large);
    await expect(usage.completions({ ...span, group_by: ['model'] })).rejects.toThrow('more than 20000 groups');
    const found = { results: [{ num_model_requests: 1 }] };
    for (const only of [{ models: [last] }, { project_ids: [formatId('proj', project)] }]) {
      expect((await usage.completions({ ...span, limit: 1, ...only })).data).toMatchObject([found]);
    }
    const { data } = await usage.costs({ ...span, limit: 1 });
    expect(data).toMatchObject([{ results: [{ amount: { value: (3 * 20_001) / 1e6 }, line_item: null }] }]);
  });

  it('pages by hour, with each hour once, from a start within an hour', async () => {
    const from = span.start_time + 1800;
    const to = span.start_time + 5 * 3600;
    const bounds: number[][] = [];
    const { usage } = adminOf(organization);
    let page: string | undefined;
    do {
      const read = await usage.completions({
        start_time: from,
        end_time: to,
        bucket_width: '1h',
        limit: 2,
        ...(page !== undefined && { page }),
      });
      bounds.push(...read.data.map((bucket) => [bucket.start_time, bucket.end_time]));
      page = read.next_page ?? undefined;
    } while (page !== undefined);
    const hours = [1, 2, 3, 4, 5].map((hour) => span.start_time + hour * 3600);
    expect(bounds).toEqual(hours.map((end, index) => [index === 0 ? from : end - 3600, end]));
  });

  it('equals the usage summary, and excludes other organizations', async () => {
    const admin = adminOf(organization);
    const pages = [await admin.usage.completions(span), await admin.usage.embeddings(span)];
    const used = pages.flatMap(({ data }) => data).flatMap(({ results }) => results);
    const costs = await admin.usage.costs({ ...span, group_by: ['line_item'] });
    const items = costs.data.flatMap(({ results }) => results);
    const bounds = 'from=2026-05-04&to=2026-05-07';
    const { totals } = await bench.ask(`/v1/usage/summary?${bounds}`, organization.managementKey);
    const sum = (values: readonly number[]): number => values.reduce((total, value) => total + value, 0);
    const of = (name: string) =>
      sum(used.map((result) => Number(Object.entries(result).find(([n]) => n === name)?.[1] ?? 0)));
    expect(of('num_model_requests')).toBe(totals.num_model_requests);
    expect(of('input_tokens')).toBe(totals.input_tokens);
    const values = items.map((item) => ('amount' in item ? (item.amount?.value ?? 0) : 0));
    expect(sum(values)).toBeCloseTo(Number(totals.cost), 12);
    expect(items).toMatchObject([
      { object: 'organization.costs.result', line_item: 'big', amount: { value: 0.5, currency: 'usd' } },
      { line_item: 'small' },
      { line_item: 'standin-embed' },
      { line_item: 'small', project_id: null, quantity: null },
    ]);
  });

  it('returns the same error for keys of another organization, project or kind and unknown keys', async () => {
    const { projects, adminAPIKeys } = adminOf(other);
    const project_id = formatId('proj', other.projectId);
    const { keyId } = await bench.makeKey(organization);
    await expect(projects.apiKeys.list(formatId('proj', organization.projectId))).rejects.toMatchObject({
      status: 404,
    });
    await expect(projects.apiKeys.delete(keyId, { project_id })).rejects.toMatchObject({ status: 404 });
    await expect(adminAPIKeys.delete(keyId)).rejects.toMatchObject({ status: 404 });
    const ownAdminKey = formatId('key', other.keyId);
    await expect(projects.apiKeys.retrieve(ownAdminKey, { project_id })).rejects.toMatchObject({ status: 404 });
    const inElsewhere = { project_id: formatId('proj', organization.projectId) };
    await expect(adminOf(organization).adminAPIKeys.retrieve(keyId)).rejects.toMatchObject({ status: 404 });
    expect(await adminOf(organization).projects.apiKeys.retrieve(keyId, inElsewhere)).toMatchObject({ id: keyId });
    await expect(
      bench.ask('/v1/organization/admin_api_keys?after=x', organization.managementKey, 400),
    ).resolves.toMatchObject({ error: { param: 'after' } });
  });

  it("leaks no creation time of another organization's key through paging", async () => {
    const fresh = await bench.openOrganization();
    await bench.makeKey(fresh);
    const { keyId } = await bench.makeKey(organization);
    const { projects } = adminOf(fresh);
    const behind = async (after: string) =>
      (await projects.apiKeys.list(formatId('proj', fresh.projectId), { after })).data;
    expect([await behind(keyId), await behind(formatId('key', uuidv7()))]).toEqual([[], []]);
  });

  it('lists the keys of a project in pages, and revokes one at once', async () => {
    const fresh = await bench.openOrganization();
    const { projects } = adminOf(fresh);
    const project_id = formatId('proj', fresh.projectId);
    const made = [await bench.makeKey(fresh), await bench.makeKey(fresh), await bench.makeKey(fresh)];
    const listed = [];
    for await (const key of projects.apiKeys.list(project_id, { limit: 2 })) listed.push(key);
    expect(listed.map(({ id }) => id)).toEqual(made.map(({ keyId }) => keyId).toReversed());
    const [newest] = listed;
    expect(newest).toMatchObject({
      object: 'organization.project.api_key',
      name: 'app',
      owner: { type: 'user', user: { role: 'owner' } },
      owner_project_access: 'active',
      expires_at: null,
      last_used_at: null,
    });
    const [, , last = { secret: '', keyId: '' }] = made;
    expect(newest?.redacted_value).toMatch(/^sk-hg-.+….{4}$/);
    expect(last.secret).not.toBe(newest?.redacted_value);
    expect(last.secret.endsWith(newest?.redacted_value.slice(-4) ?? '-')).toBe(true);
    expect(await projects.apiKeys.delete(last.keyId, { project_id })).toEqual({
      object: 'organization.project.api_key.deleted',
      id: last.keyId,
      deleted: true,
    });
    expect((await bench.gateway.request('/v1/models', { key: last.secret })).status).toBe(401);
    await expect(projects.apiKeys.retrieve(last.keyId, { project_id })).rejects.toMatchObject({ status: 404 });
    expect((await projects.apiKeys.list(project_id)).data).toHaveLength(2);
  });

  it('lists only management keys as admin keys, and revokes one', async () => {
    const fresh = await bench.openOrganization();
    await bench.makeKey(fresh);
    const { adminAPIKeys } = adminOf(fresh);
    const body = { name: 'second', scope: 'management' };
    const second: Body = await (await bench.gateway.request('/v1/keys', { key: fresh.managementKey, body })).json();
    const listed = [];
    for await (const key of adminAPIKeys.list({ limit: 1 })) listed.push(key);
    expect(listed.map(({ id }) => id)).toEqual([second.id, formatId('key', fresh.keyId)]);
    expect(await adminAPIKeys.retrieve(second.id)).toMatchObject({
      object: 'organization.admin_api_key',
      name: 'second',
      owner: { type: 'user', object: 'organization.user', role: 'owner' },
    });
    expect(await adminAPIKeys.delete(second.id)).toMatchObject({ id: second.id, deleted: true });
    expect((await bench.gateway.request('/v1/keys', { key: second.secret })).status).toBe(401);
  });
});
