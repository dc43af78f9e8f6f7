import { randomInt } from 'node:crypto';
import { beforeAll, describe, expect, it } from 'vitest';
import type { OrganizationRole, PlatformRole, Scope } from '#core/accounts/accounts.ts';
import { AppError } from '#base/errors.ts';
import { parseId, uuidv7 } from '#base/id.ts';
import type { Authenticator, Caller } from '#edge/http/http.ts';
import { type Body, openOrganization, standinFile, useInference } from '#test/inference/inference-gateway.ts';
import { billingRows } from './billing-rows.ts';
import { type Level, type RoleRow, roleRows as otherRows } from './role-rows.ts';

const roleRows = [...otherRows, ...billingRows];
import { useApi } from '#test/api/test-api.ts';

/** Every route with every kind of key, and with people, against one table of who may ask it. */

const bench = useInference(() => ({
  engines: { chat: standinFile('chat') },
  env: { HEADGATE_MAX_ACTIVE_KEYS: '1000', HEADGATE_TRUSTED_PROXIES: '127.0.0.1' },
}));

interface KindOfKey {
  readonly name: string;
  readonly secret: string | null;
  readonly organizationId: string;
  /** Status of a route of this level; null: the status of the row. */
  readonly refusal: (level: Level) => number | null;
}

const levels: readonly Level[] = ['public', 'member', 'person', 'admin', 'platform'];
const upTo =
  (most: Level) =>
  (level: Level): number | null =>
    levels.indexOf(level) <= levels.indexOf(most) ? null : 403;
const always =
  (status: number) =>
  (level: Level): number | null =>
    level === 'public' ? null : status;

let kinds: readonly KindOfKey[] = [];
let paths: Record<string, Record<string, { parameters?: readonly { name: string; in: string }[] }>> = {};
let admin = { id: '', key: '' };
let operatorsId = '';
/** A cluster of each organization. */
const clusterIds = new Map<string, string>();

const bodyOf = async (asked: Promise<Response>): Promise<Body> => (await asked).json();
const keyOf = async (key: string): Promise<Body> => bodyOf(bench.post('/v1/keys', {}, { key }));

beforeAll(async () => {
  const { gateway } = bench;
  admin = await openOrganization(gateway, '5');
  const suspended = await openOrganization(gateway, '5');
  const operator = await keyOf(gateway.key);
  const member = await keyOf(admin.key);
  const revoked = await keyOf(admin.key);
  const path = `/v1/organization/projects/${member.project_id}/service_accounts`;
  const account = await bodyOf(bench.post(path, { name: 'ci' }, { key: admin.key }));
  await gateway.request(`/v1/keys/${revoked.id}`, { method: 'DELETE', key: admin.key });
  operatorsId = (await bodyOf(gateway.request('/v1/organizations'))).data.at(-1).id;
  for (const id of [admin.id, operatorsId, suspended.id]) {
    const { id: clusterId } = await bodyOf(bench.post('/v1/clusters', { name: 'research', organization_id: id }));
    clusterIds.set(id, clusterId);
  }
  await gateway.request(`/v1/organizations/${suspended.id}`, { method: 'PATCH', body: { status: 'suspended' } });
  for (const { id, key } of [
    { id: operator.id, key: gateway.key },
    { id: member.id, key: admin.key },
    { id: account.api_key.id, key: admin.key },
  ]) {
    const limits = { requests_per_minute: null, max_concurrency: null };
    await gateway.request(`/v1/keys/${id}`, { method: 'PATCH', key, body: limits });
  }
  const { id: organizationId } = admin;
  kinds = [
    { name: 'no key', secret: null, organizationId, refusal: always(401) },
    { name: 'a revoked key', secret: revoked.secret, organizationId, refusal: always(401) },
    { name: 'a key of a suspended one', secret: suspended.key, organizationId: suspended.id, refusal: always(403) },
    { name: 'an inference key', secret: member.secret, organizationId, refusal: upTo('member') },
    { name: 'a service account’s key', secret: account.api_key.value, organizationId, refusal: upTo('member') },
    { name: 'a management key', secret: admin.key, organizationId, refusal: upTo('admin') },
    {
      name: 'an inference key of a platform admin',
      secret: operator.secret,
      organizationId: operatorsId,
      refusal: upTo('member'),
    },
    {
      name: 'the platform admin’s management key',
      secret: gateway.key,
      organizationId: operatorsId,
      refusal: upTo('platform'),
    },
  ];
  paths = (await bodyOf(gateway.request('/openapi.json'))).paths;
});

const routesOfDocument = (): string[] =>
  Object.entries(paths).flatMap(([path, operations]) =>
    Object.keys(operations).map((method) => `${method.toUpperCase()} ${path}`),
  );

async function send(row: RoleRow, secret: string | null, organizationId: string, query = ''): Promise<Response> {
  const { path, body, headers } = row.ask({ organizationId, clusterId: clusterIds.get(organizationId) ?? '' });
  const [method = 'GET'] = row.route.split(' ');
  // The hour of an address is not what is tested.
  const from = { 'x-forwarded-for': `10.0.${randomInt(256)}.${randomInt(256)}` };
  const options = { method, key: secret, headers: { ...from, ...headers }, ...(body !== undefined && { body }) };
  return bench.gateway.request(path + (path.includes('?') ? query.replace('?', '&') : query), options);
}

const hasOrganization = ({ route }: RoleRow): boolean => {
  const [method = '', path = ''] = route.split(' ');
  const { parameters = [] } = paths[path]?.[method.toLowerCase()] ?? {};
  return parameters.some(({ name, in: place }) => place === 'query' && name === 'organization_id');
};

describe('access rights for keys', () => {
  it('cover every route of the OpenAPI document, and no other', () => {
    expect(roleRows.map(({ route }) => route).toSorted()).toEqual(routesOfDocument().toSorted());
  });

  it.each(roleRows)('are enforced for every kind of key: $route', async (row) => {
    for (const { name, secret, organizationId, refusal } of kinds) {
      const answer = await send(row, secret, organizationId);
      const text = await answer.text();
      expect([name, answer.status], text).toEqual([name, refusal(row.level) ?? row.status]);
    }
  });

  it.each(roleRows)('limit other organizations to platform admins: $route', async (row) => {
    if (!hasOrganization(row)) return;
    for (const { name, secret, organizationId, refusal } of kinds) {
      const isOperator = secret === bench.gateway.key;
      const other = isOperator ? admin.id : operatorsId;
      if (organizationId === other) continue;
      const answer = await send(row, secret, organizationId, `?organization_id=${other}`);
      const text = await answer.text();
      const wanted = refusal(row.level) ?? (isOperator ? row.status : 404);
      expect([name, answer.status], text).toEqual([name, wanted]);
    }
  });

  it.each(roleRows)('accept org for organization_id, and not a different one beside it: $route', async (row) => {
    if (!hasOrganization(row) || row.isOpenai === true) return;
    for (const [query, status] of [
      [`?org=${admin.id}`, row.status],
      [`?org=${admin.id}&organization_id=${admin.id}`, row.status],
      [`?org=${operatorsId}&organization_id=${admin.id}`, 400],
      [`?org=${operatorsId}&org=${admin.id}`, 400],
    ] as const) {
      const answer = await send(row, bench.gateway.key, operatorsId, query);
      const text = await answer.text();
      expect([query, answer.status], text).toEqual([query, status]);
      expect(text.includes('must be the same as organization_id')).toBe(
        status === 400 && query.startsWith(`?org=${operatorsId}`),
      );
    }
  });

  it.each(roleRows)('return 400 with the allowed query parameters for an unknown one: $route', async (row) => {
    const answer = await send(row, bench.gateway.key, operatorsId, '?organisation_id=x');
    const text = await answer.text();
    expect(answer.status, text).toBe(row.isOpenai === true ? row.status : 400);
    if (row.isOpenai === true) return;
    expect(text).toContain('organisation_id: is unknown; ');
    expect(text).toMatch(
      hasOrganization(row) ? /allowed query parameters: [a-z_, ]*organization_id/ : /query parameters/,
    );
  });
});

/** Signed-in users, by the name that stands in the place of a session's cookie. */
const people = new Map<string, Caller>();

const authenticator: Authenticator = {
  authenticate({ rawHeaders }) {
    const caller = people.get(rawHeaders[rawHeaders.findIndex((name) => name === 'x-test-user') + 1] ?? '');
    if (caller === undefined) throw new AppError('unauthorized');
    return caller;
  },
};

describe('access rights for users', () => {
  const api = useApi({ authenticator, maxActiveKeys: 1000 });
  let organizationId = '';
  let clusterId = '';

  beforeAll(async () => {
    const key = await api().keys.verify(api().admin);
    const project = await api().accounts.findProject(key?.organizationId ?? '', key?.projectId ?? '');
    if (project === null) throw new Error('the first organization has no project');
    organizationId = project.organizationId;
    const actor = { kind: 'user', user: { id: key?.userId ?? '' }, sessionId: uuidv7() } as const;
    const sign = (name: string, scope: Scope, organizationRole: OrganizationRole, platformRole: PlatformRole): void =>
      void people.set(name, { actor, organizationId, project, scope, organizationRole, platformRole });
    sign('platform', 'management', 'member', 'admin');
    const body = { name: 'research', organization_id: `org_${organizationId.replaceAll('-', '')}` };
    const headers = { 'x-test-user': 'platform' };
    clusterId = (await api().ask('/v1/clusters', { method: 'POST', body, headers, key: null })).body.id;
    sign('member', 'management', 'member', 'user');
    sign('admin', 'management', 'admin', 'user');
    sign('owner', 'management', 'owner', 'user');
    sign('narrow', 'inference', 'owner', 'admin');
  });

  const most: Readonly<Record<string, Level>> = {
    member: 'person',
    admin: 'admin',
    owner: 'admin',
    platform: 'platform',
    narrow: 'member',
  };

  it.each(roleRows)('are enforced for every role: $route', async (row) => {
    const [method = 'GET', path = ''] = row.route.split(' ');
    // Only keys use models and read about themselves; engines and their counters are not there.
    if (
      row.isOpenai === true ||
      /^\/v1\/(?:key$|pricing|admin\/(?:engine-files|engines|hosts|unused|reconcile))/.test(path)
    )
      return;
    for (const [name, level] of Object.entries(most)) {
      const asked = row.ask({ organizationId: `org_${organizationId.replaceAll('-', '')}`, clusterId });
      const headers = { 'x-test-user': name };
      const answer = await api().ask(asked.path, { ...asked, method, key: null, headers });
      const may = upTo(level)(row.level) ?? row.status;
      expect([name, answer.status, may], JSON.stringify(answer.body)).toEqual([name, may, may]);
    }
  });
});

describe('a key created by a platform admin in another organization', () => {
  it('has the rights of that organization, and no platform rights', async () => {
    const { gateway } = bench;
    const answer = await bench.post(`/v1/keys?organization_id=${admin.id}`, { scope: 'management' });
    const made: Body = await answer.json();
    expect(answer.status).toBe(201);
    const mine: Body = await bodyOf(gateway.request('/v1/keys?limit=500', { key: admin.key }));
    expect(mine.data.map(({ id }: Body) => id)).toContain(made.id);
    expect((await gateway.request('/v1/organizations', { key: made.secret })).status).toBe(403);
    const [row] = await gateway.db.sql`
      SELECT platform_role FROM users JOIN api_keys ON api_keys.user_id = users.id
      WHERE api_keys.id = ${parseId('key', made.id)}`;
    expect(row).toEqual({ platform_role: 'user' });
  });
});
