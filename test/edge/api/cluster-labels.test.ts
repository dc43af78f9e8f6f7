import { beforeAll, describe, expect, it } from 'vitest';
import { makeCluster, newName, nodeBody } from '#test/api/cluster-support.ts';
import { type Answer, useApi } from '#test/api/test-api.ts';

const api = useApi();
let organization = { id: '', key: '' };
beforeAll(async () => {
  organization = await api().organization();
});
const fieldsOf = ({ body }: Answer): string[] => body.error.details.map(({ field }: { field: string }) => field);
const create = (body: object) => makeCluster(api(), { organization_id: organization.id, ...body });
const patch = (path: string, labels: unknown): Promise<Answer> =>
  api().ask(path, { method: 'PATCH', body: { labels } });

describe('labels of clusters and nodes', () => {
  it('are returned as they were set, sorted by key, and none without any', async () => {
    const labels = { team: 'Research_1', 'example.com/cost-center': '4711', empty: '' };
    const cluster = await create({ labels, nodes: [nodeBody('a', { labels: { pool: 'x' } }), nodeBody('b')] });
    expect(Object.entries(cluster.labels)).toEqual(Object.entries(labels).toSorted(([a], [b]) => (a < b ? -1 : 1)));
    expect(cluster.nodes.map((node: { labels: object }) => node.labels)).toEqual([{ pool: 'x' }, {}]);
    expect((await api().ask(`/v1/clusters/${cluster.id}`)).body.labels).toEqual(labels);
  });

  it('are set and removed one by one', async () => {
    const cluster = await create({ labels: { a: '1', b: '2' }, nodes: [nodeBody('n', { labels: { a: 'own' } })] });
    const path = `/v1/clusters/${cluster.id}`;
    expect((await patch(path, { b: null, c: '3', absent: null })).body.labels).toEqual({ a: '1', c: '3' });
    expect((await patch(`${path}/nodes/n`, { d: '4' })).body.labels).toEqual({ a: 'own', d: '4' });
    expect((await patch(`${path}/nodes/n`, { a: null })).body.labels).toEqual({ d: '4' });
  });

  it('are in the audit log', async () => {
    const cluster = await create({ labels: { a: '1' } });
    await patch(`/v1/clusters/${cluster.id}`, { a: '2' });
    await patch(`/v1/clusters/${cluster.id}`, { a: '2', absent: null });
    const { body } = await api().ask(`/v1/audit?organization_id=${organization.id}&action=cluster.changed`);
    const ofCluster = body.data.filter((entry: { target_id: string }) => entry.target_id === cluster.id);
    expect(ofCluster).toHaveLength(1);
    const [changed] = ofCluster;
    expect([changed.before.labels, changed.after.labels]).toEqual([{ a: '1' }, { a: '2' }]);
  });

  it.each([
    '',
    '-a',
    'a-',
    'a b',
    'ä',
    'a/b/c',
    '/a',
    'a/',
    'Upper.com/a',
    '=x',
    'a=b',
    'a'.repeat(64),
    '<b>',
    'a\u0000',
  ])('are rejected with the key %j', async (key) => {
    const body = { name: newName(), organization_id: organization.id, labels: { [key]: 'x' } };
    const answer = await api().ask('/v1/clusters', { body });
    expect(answer.status).toBe(400);
    expect(fieldsOf(answer)[0]).toMatch(/^(labels|body)/);
    expect(answer.body.error.message).toContain('must be 1 to 63 letters');
  });

  it.each(['-a', 'a b', 'ä', 'a/b', 'a'.repeat(64), '=cmd', 7, {}, '<b>'])(
    'are rejected with the value %j',
    async (value) => {
      const cluster = await create({});
      expect(fieldsOf(await patch(`/v1/clusters/${cluster.id}`, { team: value }))).toEqual(['labels.team']);
    },
  );

  it('are 32 at most', async () => {
    const cluster = await create({ labels: Object.fromEntries(Array.from({ length: 32 }, (_, i) => [`k${i}`, ''])) });
    const more = await patch(`/v1/clusters/${cluster.id}`, { other: 'x' });
    expect([more.status, more.body.error.message]).toEqual([409, expect.stringContaining('at most 32 labels')]);
    expect((await patch(`/v1/clusters/${cluster.id}`, { k0: null, other: 'x' })).status).toBe(200);
  });

  it('cannot be changed by members', async () => {
    const cluster = await create({});
    const options = { method: 'PATCH', body: { labels: { a: '1' } }, key: organization.key } as const;
    expect((await api().ask(`/v1/clusters/${cluster.id}`, options)).status).toBe(403);
  });
});
