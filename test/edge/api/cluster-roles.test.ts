import { beforeAll, describe, expect, it } from 'vitest';
import { formatId, uuidv7 } from '#base/id.ts';
import { makeCluster, newName, nodeBody } from '#test/api/cluster-support.ts';
import { useApi } from '#test/api/test-api.ts';

/** Permissions on clusters: every route asked by everybody. */

const api = useApi();
let mine = { id: '', key: '' };
let keys: Record<string, string | null> = {};

const callers = [
  'nobody',
  'a stranger',
  'a member',
  'an admin of the organization',
  'an operator',
  'an operator’s inference key',
  'an operator’s provisioner',
];

beforeAll(async () => {
  mine = await api().organization('Mine');
  const stranger = await api().organization('Stranger');
  const newKey = async (key: string | null, scope: string): Promise<string> => {
    const body = { name: 'another', scope };
    const answer = await api().ask('/v1/keys', { ...(key !== null && { key }), body });
    if (answer.status !== 201) throw new Error(JSON.stringify(answer.body));
    return answer.body.secret;
  };
  keys = {
    nobody: null,
    'a stranger': stranger.key,
    'a member': await newKey(mine.key, 'inference'),
    'an admin of the organization': mine.key,
    'an operator': api().admin,
    'an operator’s inference key': await newKey(null, 'inference'),
    'an operator’s provisioner': await newKey(null, 'management'),
  };
});

/** Statuses of a request for each of the callers, in their order. */
type Row = readonly [name: string, method: string, path: string, body: object | null, statuses: readonly number[]];

const rows: readonly Row[] = [
  ['read', 'GET', '', null, [401, 404, 200, 200, 200, 404, 200]],
  ['change', 'PATCH', '', { public_domain: null }, [401, 404, 403, 403, 200, 404, 200]],
  ['change wrongly', 'PATCH', '', { colour: 'red' }, [401, 404, 403, 403, 400, 404, 400]],
  ['add a node', 'POST', '/nodes', nodeBody(), [401, 404, 403, 403, 409, 404, 409]],
  ['change a node', 'PATCH', '/nodes/gpu-1', {}, [401, 404, 403, 403, 200, 404, 200]],
  ['allocate', 'POST', '/nodes/gpu-1/allocate', null, [401, 404, 403, 403, 200, 404, 200]],
  ['allocate what is not there', 'POST', '/nodes/gpu-2/allocate', null, [401, 404, 403, 403, 404, 404, 404]],
  ['release', 'POST', '/nodes/gpu-1/release', null, [401, 404, 403, 403, 200, 404, 200]],
  ['say that a node is there', 'POST', '/nodes/gpu-1/heartbeat', null, [401, 404, 403, 403, 204, 404, 204]],
  ['rotate', 'POST', '/access-identity/rotate', null, [401, 404, 403, 403, 200, 404, 200]],
  ['remove a node', 'DELETE', '/nodes/gpu-1', null, [401, 404, 403, 403, 204, 404, 204]],
  ['delete', 'DELETE', '', null, [401, 404, 403, 403, 204, 404, 204]],
];

describe.each(rows)('a request to %s', (...[, method, path, body, statuses]) => {
  it.each(callers.map((caller, index) => [caller, statuses[index]] as const))(
    'answers the caller "%s" with %i',
    async (caller, status) => {
      const cluster = await makeCluster(api(), { organization_id: mine.id });
      const options = { key: keys[caller] ?? null, method, ...(body !== null && { body }) };
      const answer = await api().ask(`/v1/clusters/${cluster.id}${path}`, options);
      expect(answer.status).toBe(status);
      // A hidden cluster is answered as a missing one.
      const absent = await api().ask(`/v1/clusters/${formatId('cluster', uuidv7())}${path}`, options);
      expect(absent.status).toBe(status === 401 ? 401 : 404);
    },
  );
});

describe('POST /v1/clusters', () => {
  it.each([
    ['nobody', 401],
    ['a stranger', 403],
    ['a member', 403],
    ['an admin of the organization', 403],
    ['an operator', 201],
    ['an operator’s inference key', 403],
    ['an operator’s provisioner', 201],
  ])('answers the caller "%s" with %i', async (caller, status) => {
    const body = { name: newName(), organization_id: mine.id };
    expect((await api().ask('/v1/clusters', { key: keys[caller] ?? null, body })).status).toBe(status);
  });
});

describe('GET /v1/clusters', () => {
  const list = async (caller: string, query = ''): Promise<string[]> => {
    const { body } = await api().ask(`/v1/clusters?limit=100${query}`, { key: keys[caller] ?? null });
    return body.data.map(({ id }: { id: string }) => id);
  };

  it('returns the clusters of their organization to members, and all clusters to operators', async () => {
    const cluster = await makeCluster(api(), { organization_id: mine.id });
    const other = await makeCluster(api());
    for (const caller of ['a member', 'an admin of the organization']) {
      expect(await list(caller)).toContain(cluster.id);
      expect(await list(caller)).not.toContain(other.id);
      expect(await list(caller, `&org=${mine.id}`)).toContain(cluster.id);
      const path = `/v1/clusters?org=${other.organization_id}`;
      expect((await api().ask(path, { key: keys[caller] ?? null })).status).toBe(404);
    }
    expect(await list('a stranger')).toEqual([]);
    expect(await list('an operator', `&org=${other.organization_id}`)).toEqual([other.id]);
    expect(await list('an operator')).toEqual(expect.arrayContaining([cluster.id, other.id]));
  });

  it('returns a moved cluster to its new organization', async () => {
    const cluster = await makeCluster(api());
    expect(await list('a member')).not.toContain(cluster.id);
    await api().ask(`/v1/clusters/${cluster.id}`, { method: 'PATCH', body: { organization_id: mine.id } });
    expect(await list('a member')).toContain(cluster.id);
  });
});
