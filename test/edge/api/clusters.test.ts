import { beforeAll, describe, expect, it } from 'vitest';
import { formatId, uuidv7 } from '#base/id.ts';
import { makeKeyPair } from '#core/clusters/ssh-keys.ts';
import { hostKey, makeCluster, newName, nodeBody } from '#test/api/cluster-support.ts';
import { type Answer, type AskOptions, useApi } from '#test/api/test-api.ts';

const api = useApi();
const ask = (path: string, options?: AskOptions): Promise<Answer> => api().ask(path, options);
const fieldsOf = ({ body }: Answer): string[] => body.error.details.map(({ field }: { field: string }) => field);
let organization = { id: '', key: '' };
beforeAll(async () => {
  organization = await api().organization();
});
const create = (body: object): Promise<Answer> =>
  ask('/v1/clusters', { body: { name: newName(), organization_id: organization.id, ...body } });

describe('a rejected cluster request', () => {
  it('names all problems at once and stores nothing', async () => {
    const answer = await ask('/v1/clusters', {
      body: {
        name: 'Über',
        organization_id: 'acme',
        public_domain: 'localhost',
        nodes: [nodeBody('a', { address: '1.2.3', ssh_port: 0, ssh_user: 'a b', host_key: 'x' }), nodeBody('a'), {}],
        access_identity: { private_key: 'x' },
        colour: 'red',
      },
    });
    expect([answer.status, answer.body.error.code]).toEqual([400, 'VALIDATION_ERROR']);
    const wrong =
      'access_identity.private_key colour name nodes.0.address nodes.0.host_key nodes.0.ssh_port nodes.0.ssh_user ' +
      'nodes.2.address nodes.2.hardware_profile nodes.2.name organization_id public_domain';
    expect(fieldsOf(answer).toSorted()).toEqual(wrong.split(' '));
    expect(await api().db.sql`select 1 from clusters`).toHaveLength(0);
    expect(await api().db.sql`select 1 from platform_keys`).toHaveLength(0);
  });

  it.each([
    'Upper',
    '',
    '-a',
    'a-',
    'a.b',
    'a_b',
    'a b',
    'a\n',
    'a;b',
    'ünder',
    'a--b',
    'xn--a',
    'a'.repeat(64),
    5,
    null,
  ])('names the name %j', async (name) => {
    expect(fieldsOf(await create({ name }))).toEqual(['name']);
  });

  it.each([
    '',
    'localhost',
    'Apps.test',
    'a..test',
    '.test',
    'test.',
    '*.test',
    '10.0.0.1',
    'a.1',
    'a b.test',
    'a/b.test',
    `${'a.'.repeat(120)}test`,
    7,
  ])('names the public domain %j', async (domain) => {
    expect(fieldsOf(await create({ public_domain: domain }))).toEqual(['public_domain']);
  });

  it.each([
    ['10.0.0', '10.0.0.256', '010.0.0.1', '0x0a000001', '167772167', '127.1', 'a.0x1', '10.0.0.7:22'],
    ['fe80::1%eth0', '[::1]', '::1::', '12345::', 'Host', 'host_1', 'a..b', `${'a'.repeat(64)}.test`, 'hôte'],
    ['-o', '-oProxyCommand=x', 'a;reboot', '$(reboot)', '`id`', 'a@b', 'http://a'],
    ['', ' ', 'a b', 'a\nb', 'a\u0000b', 5, null],
  ])('names the addresses %j, %j, %j and similar ones', async (...addresses) => {
    for (const address of addresses) {
      const answer = await create({ nodes: [nodeBody('a', { address })] });
      expect([address, fieldsOf(answer)]).toEqual([address, ['nodes.0.address']]);
    }
  });

  it.each([
    ['name', ['Upper', 'a.b', '']],
    ['private_address', ['', 'x y', 'fe80::1%eth0']],
    ['ssh_port', [0, 65_536, 1.5, '22', -1, null]],
    ['ssh_user', ['', '-root', 'Root', 'a b', 'root;', 'r$', 'a'.repeat(33), '../x', 'ü', null]],
    ['host_key', ['', 'x', `${hostKey}\n${hostKey}`, `example.com ${hostKey}`, `command="x" ${hostKey}`, 7]],
    ['hardware_profile', ['', ' a', 'a b', 'a\n', 'a'.repeat(64), null]],
    ['gpus', [-1, 1.5, 1025, '8', null]],
  ])('names an invalid %s of a node', async (field, values) => {
    for (const value of values) {
      expect([value, fieldsOf(await create({ nodes: [nodeBody('a', { [field]: value })] }))]).toEqual([
        value,
        [`nodes.0.${field}`],
      ]);
    }
  });

  it('names an unknown organization, two nodes with one name, and too many nodes', async () => {
    expect((await create({ organization_id: formatId('org', uuidv7()) })).status).toBe(404);
    expect(fieldsOf(await create({ nodes: [nodeBody('a'), nodeBody('a')] }))).toEqual(['nodes.1.name']);
    const many = Array.from({ length: 65 }, (_, index) => nodeBody(`n-${index}`));
    expect(fieldsOf(await create({ nodes: many }))).toEqual(['nodes']);
  });

  it('does not repeat the private key', async () => {
    const { privateKey } = makeKeyPair('x');
    const cut = privateKey.split('\n').toSpliced(3, 1).join('\n');
    const answer = await create({ access_identity: { private_key: cut } });
    expect(fieldsOf(answer)).toEqual(['access_identity.private_key']);
    expect(JSON.stringify(answer.body)).not.toContain(cut.split('\n')[1]);
    expect(api().logLines.join('')).not.toContain(cut.split('\n')[1]);
  });

  it('returns 409 for a name used in the organization or a name used under the domain', async () => {
    const name = newName();
    expect((await create({ name, public_domain: 'apps.test' })).status).toBe(201);
    const again = await create({ name });
    expect([again.status, fieldsOf(again)]).toEqual([409, ['name']]);
    const { id } = await api().organization();
    expect((await create({ name, organization_id: id })).status).toBe(201);
    const other = await api().organization();
    const taken = await create({ name, organization_id: other.id, public_domain: 'apps.test' });
    expect([taken.status, fieldsOf(taken)]).toEqual([409, ['public_domain']]);
  });

  it.each(['page=0', 'limit=x', 'status=gone', 'cursor=x'])(
    'names the invalid parameter of a list: ?%s',
    async (query) => {
      const answer = await ask(`/v1/clusters?${query}`);
      expect([answer.status, fieldsOf(answer)]).toEqual([400, [query.split('=')[0]]]);
    },
  );
});

describe('a cluster', () => {
  it('is created, read, changed and archived, with an audit entry for each change', async () => {
    const made = await create({
      public_domain: 'a.example.com',
      nodes: [nodeBody('n-1'), nodeBody('n-2', { gpus: 0 })],
    });
    expect(made.status).toBe(201);
    expect(made.body).toEqual({
      id: expect.stringMatching(/^cluster_[0-9a-f]{32}$/),
      name: made.body.name,
      organization_id: organization.id,
      public_domain: 'a.example.com',
      access: 'public',
      status: 'active',
      access_identity: {
        public_key: expect.stringMatching(/^ssh-ed25519 AAAA\S+ headgate cluster_[0-9a-f]{32}$/),
        fingerprint: expect.stringMatching(/^SHA256:\S{43}$/),
        origin: 'generated',
        encrypted_with: expect.stringMatching(/^[0-9a-f]{16}$/),
        changed_at: expect.stringMatching(/Z$/),
      },
      nodes_total: 2,
      nodes_allocated: 0,
      labels: {},
      nodes: [
        {
          ...nodeBody('n-1', { host_key: hostKey }),
          id: expect.stringMatching(/^node_[0-9a-f]{32}$/),
          labels: {},
          status: 'registered',
          priced: false,
          allocation: null,
          last_seen_at: null,
          created_at: expect.stringMatching(/Z$/),
        },
        expect.objectContaining({ name: 'n-2', gpus: 0 }),
      ],
      created_at: expect.stringMatching(/Z$/),
      archived_at: null,
    });
    const path = made.headers.get('location') ?? '';
    expect((await ask(path)).body).toEqual(made.body);
    const changes = { name: newName(), public_domain: null };
    const changed = await ask(path, { method: 'PATCH', body: changes });
    expect([changed.status, changed.body]).toEqual([200, { ...made.body, ...changes }]);
    expect((await ask(path, { method: 'PATCH', body: {} })).body).toEqual(changed.body);
    expect((await ask(path, { method: 'DELETE' })).status).toBe(204);
    expect((await ask(path, { method: 'DELETE' })).status).toBe(204);
    const archived = await ask(path);
    expect(archived.body).toMatchObject({ status: 'archived', access_identity: { encrypted_with: null } });
    expect(archived.body.archived_at).not.toBeNull();
    const rows = await api().db.sql`select action from audit_log where target_id = ${made.body.id} order by id`;
    expect(rows.map(({ action }) => action)).toEqual(['cluster.created', 'cluster.changed', 'cluster.archived']);
  });

  it('accepts 64 nodes, and is created once by eight requests at the same time', async () => {
    const nodes = Array.from({ length: 64 }, (_, index) => nodeBody(`n-${index}`, { address: `10.0.1.${index}` }));
    const [name, { id }] = [newName(), await api().organization()];
    const answers = await Promise.all(
      Array.from({ length: 8 }, () => create({ name, organization_id: id, public_domain: 'd.example.com', nodes })),
    );
    expect(
      answers
        .map(({ status }) => String(status))
        .toSorted()
        .join(' '),
    ).toBe(`201${' 409'.repeat(7)}`);
    const { body } = await ask(`/v1/clusters?org=${id}`);
    expect(body.data).toMatchObject([{ name, nodes_total: 64 }]);
    const { body: made } = await ask(`/v1/clusters/${body.data[0].id}`);
    expect(made.nodes.map((node: { name: string }) => node.name)).toEqual(nodes.map((node) => node['name']));
  });

  it('rejects changes after it is archived, and releases its name', async () => {
    const cluster = await makeCluster(api(), { public_domain: 'b.example.com' });
    const path = `/v1/clusters/${cluster.id}`;
    await ask(path, { method: 'DELETE' });
    for (const [way, options] of [
      ['', { method: 'PATCH', body: { name: 'other' } }],
      ['/nodes', { body: nodeBody('n-9') }],
      ['/nodes/gpu-1', { method: 'PATCH', body: { gpus: 1 } }],
      ['/nodes/gpu-1', { method: 'DELETE' }],
      ['/nodes/gpu-1/allocate', { method: 'POST' }],
      ['/nodes/gpu-1/release', { method: 'POST' }],
      ['/nodes/gpu-1/heartbeat', { method: 'POST' }],
      ['/access-identity/rotate', { method: 'POST' }],
    ] as const) {
      const answer = await ask(`${path}${way}`, options);
      expect([way, answer.status, answer.body.error?.code]).toEqual([way, 409, 'CONFLICT']);
    }
    const { name, organization_id: id } = cluster;
    expect((await create({ name, organization_id: id, public_domain: 'b.example.com' })).status).toBe(201);
  });

  it('is listed by organization and status, in pages', async () => {
    const { id } = await api().organization();
    const made: Answer['body'][] = [];
    for (let index = 0; index < 3; index += 1) made.push(await makeCluster(api(), { organization_id: id }));
    await ask(`/v1/clusters/${made[0].id}/nodes/gpu-1/allocate`, { method: 'POST' });
    await ask(`/v1/clusters/${made[1].id}`, { method: 'DELETE' });
    const list = async (query: string): Promise<unknown> => {
      const { body } = await ask(`/v1/clusters?organization_id=${id}&${query}`);
      return [body.data.map((one: { name: string }) => one.name), body.pagination.total];
    };
    const names = made.map(({ name }) => name);
    expect(await list('')).toEqual([[names[0], names[2]], 2]);
    expect(await list('status=archived')).toEqual([[names[1]], 1]);
    expect(await list('status=all&limit=2&page=2')).toEqual([[names[2]], 3]);
    const { body } = await ask(`/v1/clusters?org=${id}&limit=1`);
    const { nodes: _, ...summary } = made[0];
    expect(body).toEqual({
      data: [{ ...summary, nodes_allocated: 1 }],
      pagination: { page: 1, limit: 1, total: 2, pages: 2 },
    });
  });
});

describe('a node', () => {
  it('is added, changed and removed, under a unique name', async () => {
    const cluster = await makeCluster(api());
    const path = `/v1/clusters/${cluster.id}/nodes`;
    const added = await ask(path, { body: { name: 'n-2', address: 'node-2.internal', hardware_profile: 'cpu' } });
    expect(added.status).toBe(201);
    expect(added.body).toMatchObject({
      private_address: null,
      ssh_port: 22,
      ssh_user: 'root',
      host_key: null,
      gpus: 0,
    });
    const twice = await ask(path, { body: nodeBody('n-2') });
    expect([twice.status, fieldsOf(twice)]).toEqual([409, ['name']]);
    const taken = await ask(`${path}/n-2`, { method: 'PATCH', body: { name: 'gpu-1' } });
    expect([taken.status, fieldsOf(taken)]).toEqual([409, ['name']]);
    const bad = await ask(`${path}/n-2`, { method: 'PATCH', body: { gpus: -1, ssh_port: 'x', id: 'y' } });
    expect(fieldsOf(bad)).toEqual(['ssh_port', 'gpus', 'id']);
    const body = { address: '2001:db8::7', host_key: `${hostKey} new`, gpus: 4 };
    const changed = await ask(`${path}/${added.body.id}`, { method: 'PATCH', body });
    expect([changed.status, changed.body]).toEqual([200, { ...added.body, ...body, host_key: hostKey }]);
    expect((await ask(`${path}/n-2`, { method: 'DELETE' })).status).toBe(204);
    expect((await ask(`${path}/n-2`, { method: 'DELETE' })).status).toBe(404);
    const rows = await api().db.sql`select action from audit_log where target_id = ${added.body.id} order by id`;
    expect(rows.map(({ action }) => action)).toEqual([
      'cluster_node.added',
      'cluster_node.changed',
      'cluster_node.removed',
    ]);
  });

  it('returns 404 for an unknown name or id in the cluster', async () => {
    const [cluster, other] = [await makeCluster(api()), await makeCluster(api())];
    for (const node of [other.nodes[0].id, formatId('node', uuidv7()), 'gpu-2', 'GPU-1', 'node_1', '%00', 'a%2Fb']) {
      const answer = await ask(`/v1/clusters/${cluster.id}/nodes/${node}/allocate`, { method: 'POST' });
      expect([node, answer.status, answer.body.error.code]).toEqual([node, 404, 'NOT_FOUND']);
    }
  });
});
