import OpenAI from 'openai';
import { beforeAll, describe, expect, it } from 'vitest';
import { type Body, type TestOrganization, useGateway } from '#test/metering/recorded-usage.ts';

/** Every method of the official SDK's `client.admin.organization`, asked as it is. */

const bench = useGateway();
let own: TestOrganization;
let other: TestOrganization;
const clientOf = ({ managementKey }: TestOrganization) =>
  new OpenAI({ adminAPIKey: managementKey, apiKey: null, baseURL: `${bench.gateway.url}/v1`, maxRetries: 0 });
const adminOf = (organization: TestOrganization) => clientOf(organization).admin.organization;

beforeAll(async () => {
  own = await bench.openOrganization();
  other = await bench.openOrganization();
});

const ask = (path: string, status: number): Promise<Body> =>
  bench.ask(`/v1/organization/${path}`, own.managementKey, status);

describe("an invalid request to OpenAI's organization API", () => {
  it.each([
    ['projects?limit=0', 'limit'],
    ['projects?limit=101', 'limit'],
    ['projects?after=proj_1', 'after'],
    ['projects?include_archived=perhaps', 'include_archived'],
    ['projects?sort=name', 'sort'],
    ['users?after=proj_019ab1c2d3e47f008a1b2c3d4e5f6071', 'after'],
    ['users?after=user_019ab1c2d3e47f008a1b2c3d4e5f6071', 'after'],
    ['groups?limit=many', 'limit'],
    ['admin_api_keys?order=sideways', 'order'],
    ['usage/images?start_time=now', 'start_time'],
    ['usage/images?start_time=0&start_time=1', 'start_time'],
  ])('returns 400 with the parameter: %s', async (path, param) => {
    const { error } = await ask(path, 400);
    expect(error).toMatchObject({ param, type: 'invalid_request_error' });
  });

  it("returns 404 for reading, renaming, archiving and listing keys of another organization's project", async () => {
    const { id } = await adminOf(other).projects.create({ name: 'Theirs' });
    const { projects } = adminOf(own);
    for (const asked of [
      () => projects.retrieve(id),
      () => projects.update(id, { name: 'Mine' }),
      () => projects.archive(id),
      () => projects.apiKeys.list(id),
    ]) {
      await expect(asked()).rejects.toMatchObject({ status: 404 });
    }
    expect(await adminOf(other).projects.retrieve(id)).toMatchObject({ name: 'Theirs', status: 'active' });
  });

  it('returns an error for a project without a name, with a taken name, or with an unsupported field', async () => {
    const { projects } = adminOf(own);
    await projects.create({ name: 'Taken' });
    await expect(projects.create({ name: 'taken' })).rejects.toMatchObject({ status: 409 });
    await expect(projects.create({ name: '' })).rejects.toMatchObject({ status: 400, param: 'name' });
    await expect(projects.create({ name: 'x', geography: 'EU' })).rejects.toMatchObject({
      status: 400,
      param: 'geography',
    });
  });

  it('returns an error for an admin key with an invalid expiry, or above the key limit', async () => {
    const organization = await bench.openOrganization();
    const { adminAPIKeys } = adminOf(organization);
    for (const expires of [0, -1, 1.5, 10 ** 12]) {
      await expect(adminAPIKeys.create({ name: 'x', expires_in_seconds: expires })).rejects.toMatchObject({
        status: 400,
      });
    }
    const { data } = await adminAPIKeys.list();
    for (let made = data.length; made < 5; made += 1) await adminAPIKeys.create({ name: `${made}` }).catch(() => null);
    await expect(adminAPIKeys.create({ name: 'the sixth' })).rejects.toMatchObject({ status: 409 });
  });
});

describe('projects', () => {
  it('are created, read, renamed and archived, with the same rows and audit entries as by /v1/projects', async () => {
    const organization = await bench.openOrganization();
    const { projects } = adminOf(organization);
    const made = await projects.create({ name: 'Search' });
    expect(made).toMatchObject({ object: 'organization.project', name: 'Search', status: 'active', archived_at: null });
    expect(Math.abs(made.created_at - Date.now() / 1000)).toBeLessThan(3600);
    expect(await projects.retrieve(made.id)).toEqual(made);
    expect(await projects.update(made.id, { name: 'Find' })).toEqual({ ...made, name: 'Find' });
    expect(await projects.archive(made.id)).toMatchObject({ status: 'archived' });
    expect((await projects.list()).data.map(({ id }) => id)).not.toContain(made.id);
    expect((await projects.list({ include_archived: true })).data.map(({ id }) => id)).toContain(made.id);
    const { data }: Body = await bench.ask(`/v1/audit?target_id=${made.id}`, organization.managementKey);
    expect(data.map(({ action }: Body) => action)).toEqual(['project.archived', 'project.changed', 'project.created']);
  });

  it('are listed newest first, in pages, each once', async () => {
    const organization = await bench.openOrganization();
    const { projects } = adminOf(organization);
    const names = Array.from({ length: 7 }, (_, index) => `Number ${index}`);
    for (const name of names) await projects.create({ name });
    const seen: string[] = [];
    for await (const { name } of projects.list({ limit: 3 })) seen.push(name ?? '');
    expect(seen.slice(0, 7)).toEqual(names.toReversed());
    expect(new Set(seen).size).toBe(seen.length);
  });
});

describe('admin keys', () => {
  it('are created with the secret in that response only, work, and expire', async () => {
    const organization = await bench.openOrganization();
    const { adminAPIKeys } = adminOf(organization);
    const { value, ...key } = await adminAPIKeys.create({ name: 'CI', expires_in_seconds: 3600 });
    expect(key).toMatchObject({ object: 'organization.admin_api_key', name: 'CI', last_used_at: null });
    expect((key.expires_at ?? 0) - key.created_at).toBe(3600);
    expect(key.redacted_value).not.toBe(value);
    expect(await adminAPIKeys.retrieve(key.id)).toEqual(key);
    await bench.ask('/v1/organization/projects', value);
    expect((await adminAPIKeys.list({ order: 'asc' })).data.at(-1)?.id).toBe(key.id);
    expect((await adminAPIKeys.list({ order: 'desc' })).data[0]?.id).toBe(key.id);
    expect(await adminAPIKeys.delete(key.id)).toMatchObject({ id: key.id, deleted: true });
    await bench.ask('/v1/organization/projects', value, 401);
  });
});

describe('users and invites', () => {
  it('are limited to the organization and have a role; invited people are pending', async () => {
    const { users, invites } = adminOf(own);
    const { data } = await users.list();
    expect(data.length).toBeGreaterThan(0);
    const [first] = data;
    expect(first).toMatchObject({ object: 'organization.user', role: expect.stringMatching(/^(owner|admin|member)$/) });
    expect(await users.retrieve(first?.id ?? '')).toEqual(first);
    await expect(adminOf(other).users.retrieve(first?.id ?? '')).rejects.toMatchObject({ status: 404 });
    expect((await invites.list()).data).toEqual([]);
    const body = { email: 'guest@example.com', role: 'member' };
    const invited = await bench.gateway.request('/v1/invitations', { key: own.managementKey, body });
    expect(invited.status).toBe(201);
    expect((await invites.list()).data).toMatchObject([{ email: body.email, role: 'reader', status: 'pending' }]);
    expect((await adminOf(other).invites.list()).data).toEqual([]);
  });
});

type Method = (...args: unknown[]) => Promise<unknown>;

/** Its methods by their dotted name, those of what is below it too. */
function methodsOf(resource: object, name = ''): [string, Method][] {
  const own = Object.getOwnPropertyNames(Object.getPrototypeOf(resource))
    .filter((key) => key !== 'constructor' && !key.startsWith('_'))
    .flatMap((key): [string, Method][] => {
      const value: unknown = Reflect.get(resource, key);
      return typeof value === 'function' ? [[`${name}${key}`, (value as Method).bind(resource)]] : [];
    });
  const below = Object.entries(resource).flatMap(([key, value]) =>
    key.startsWith('_') || typeof value !== 'object' || value === null
      ? []
      : methodsOf(value as object, `${name}${key}.`),
  );
  return [...own, ...below];
}

describe('every method of the SDK', () => {
  it('gets a result or an error message, never an unknown route or a 5xx', async () => {
    const organization = await bench.openOrganization();
    const admin = adminOf(organization);
    const { id: project } = await admin.projects.create({ name: 'Walked' });
    const ofTwo = /^projects\.(users|groups)\.roles\./;
    const told: Record<string, string> = {};
    for (const [name, method] of methodsOf(admin)) {
      const isList = /\.list\w*$/.test(name);
      const first = name.startsWith('projects.') && !ofTwo.test(name) ? project : 'x';
      const ids = { project_id: project, user_id: 'x', group_id: 'x', workload_identity_provider_id: 'x' };
      const second = isList ? (ofTwo.test(name) ? [{ project_id: project }] : []) : [ids];
      const isOfAll =
        isList && !/^(projects\.|groups\.|users\.roles|workloadIdentityProviders\.f)|^projects\.list$/.test(name);
      const args = isOfAll || name === 'projects.list' || name === 'groups.list' ? [] : [first, ...second];
      const asked = name.startsWith('usage.') ? method({ start_time: 0, end_time: 86_400 }) : method(...args);
      told[name] = await Promise.resolve(asked).then(
        () => 'answered',
        (error: { status?: number; error?: { message?: string }; message: string }) =>
          error.status === undefined ? error.message : `${error.status} ${error.error?.message ?? ''}`,
      );
    }
    expect(Object.keys(told).length).toBeGreaterThan(100);
    const wrong = Object.entries(told).filter(
      ([, text]) => !/^(answered|501 .{20,}|405 .{40,}|40[049] .{10,})/.test(text),
    );
    expect(wrong).toEqual([]);
    const lists = Object.entries(told).filter(([name]) => /\.list\w*$/.test(name) && name !== 'auditLogs.list');
    expect(lists.filter(([, text]) => text !== 'answered')).toEqual([]);
    expect(Object.entries(told).filter(([name, text]) => name.startsWith('usage.') && text !== 'answered')).toEqual([]);
  });
});
