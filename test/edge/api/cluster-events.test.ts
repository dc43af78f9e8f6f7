import { describe, expect, it } from 'vitest';
import { intervalsOf, makeCluster, nodeBody } from '#test/api/cluster-support.ts';
import { type Answer, useApi } from '#test/api/test-api.ts';

const api = useApi();

const at = (clock: string): string => `2026-03-10T${clock}:00.000Z`;
const fieldsOf = ({ body }: Answer): string[] => body.error.details.map(({ field }: { field: string }) => field);

/** A cluster with a node, and what is done to it. */
async function useNode() {
  const cluster = await makeCluster(api());
  const path = `/v1/clusters/${cluster.id}/nodes/gpu-1`;
  const tell = (kind: string, body?: object): Promise<Answer> =>
    api().ask(`${path}/${kind}`, { method: 'POST', ...(body !== undefined && { body }) });
  return {
    cluster,
    path,
    tell,
    allocate: (clock: string, generation?: number) => tell('allocate', { at: at(clock), generation }),
    release: (clock: string, generation?: number) => tell('release', { at: at(clock), generation }),
    /** "10:00–12:00" */
    intervals: async () =>
      (await intervalsOf(api(), cluster.id)).map((text) =>
        text.replaceAll(/2026-03-10T(\d\d:\d\d):00\.000Z/g, '$1').replace(' Water Works', ''),
      ),
    node: async () => (await api().ask(`/v1/clusters/${cluster.id}`)).body.nodes[0],
  };
}

describe('a rejected node event', () => {
  it.each([
    [{ at: '2026-03-10' }, 'at'],
    [{ at: '2026-03-10T10:00:00' }, 'at'],
    [{ at: 'yesterday' }, 'at'],
    [{ at: 1_790_000_000 }, 'at'],
    [{ at: null }, 'at'],
    [{ at: new Date(Date.now() + 3_600_000).toISOString() }, 'at'],
    [{ generation: 0 }, 'generation'],
    [{ generation: 1.5 }, 'generation'],
    [{ generation: '1' }, 'generation'],
    [{ when: 'now' }, 'when'],
  ])('is not stored: %j', async (body, field) => {
    const { tell, intervals, node } = await useNode();
    for (const kind of ['allocate', 'release']) {
      const answer = await tell(kind, body);
      expect([answer.status, fieldsOf(answer)]).toEqual([400, [field]]);
    }
    expect([await intervals(), (await node()).allocation]).toEqual([[], null]);
  });

  it('returns 400 when its time is in the future, even if the node has that state already', async () => {
    const { tell, node } = await useNode();
    const ahead = { at: new Date(Date.now() + 3_600_000).toISOString() };
    for (const kind of ['allocate', 'release']) {
      await tell(kind);
      const answer = await tell(kind, ahead);
      expect([kind, answer.status, fieldsOf(answer)]).toEqual([kind, 400, ['at']]);
    }
    expect((await node()).status).toBe('released');
  });

  it('returns 400 or 415 for a body or content type that is not JSON', async () => {
    const { path } = await useNode();
    for (const [body, type, status] of [
      ['{', 'application/json', 400],
      ['', 'application/json', 200],
      ['{}', 'text/plain', 415],
      ['[]', 'application/json', 400],
    ] as const) {
      const headers = { 'content-type': type };
      expect([body, (await api().ask(`${path}/allocate`, { body, headers })).status]).toEqual([body, status]);
    }
  });

  it('returns 409 when its time is before the last stored event and it has no generation', async () => {
    const { allocate, release, intervals } = await useNode();
    await allocate('10:00');
    await release('12:00');
    await allocate('14:00');
    for (const answer of [await allocate('09:00'), await allocate('13:00'), await release('13:00')]) {
      expect([answer.status, answer.body.error.code, fieldsOf(answer)]).toEqual([409, 'CONFLICT', ['at']]);
    }
    expect(await intervals()).toEqual(['10:00–12:00', '14:00–']);
    expect((await allocate('09:00', 3)).body.outcome).toBe('recorded');
    expect((await release('09:30', 3)).body.outcome).toBe('recorded');
    expect(await intervals()).toEqual(['09:00–09:30', '10:00–12:00', '14:00–']);
  });
});

describe('node events', () => {
  it("start and end the node's hours, now or at a time in the past", async () => {
    const { tell, allocate, release, node, intervals, cluster } = await useNode();
    const first = await allocate('10:00');
    expect([first.status, first.body]).toMatchObject([
      200,
      {
        outcome: 'recorded',
        allocation: { generation: 1, allocated_at: at('10:00'), released_at: null, estimated: false },
        node: { name: 'gpu-1', status: 'allocated' },
      },
    ]);
    expect((await release('12:00')).body.node).toMatchObject({ status: 'released', allocation: { generation: 1 } });
    const before = Date.now();
    const { body } = await tell('allocate');
    expect(Date.parse(body.allocation.allocated_at)).toBeGreaterThan(before - 60_000);
    expect(await node()).toMatchObject({ status: 'allocated', allocation: { generation: 2, released_at: null } });
    expect((await intervals()).slice(0, 1)).toEqual(['10:00–12:00']);
    expect(await intervals()).toHaveLength(2);
    const rows = await api().db.sql`
      select action, after from audit_log where target_id = ${cluster.nodes[0].id} and action <> 'cluster_node.added'
      order by id`;
    expect(rows.map(({ action }) => action)).toEqual([
      'cluster_node.allocated',
      'cluster_node.released',
      'cluster_node.allocated',
    ]);
    expect(rows[1]).toMatchObject({ after: { cluster_id: cluster.id, generation: 1, released_at: at('12:00') } });
  });

  it('are idempotent and return the stored state', async () => {
    const { tell } = await useNode();
    expect((await tell('release')).body.outcome).toBe('recorded');
    expect((await tell('release')).body.outcome).toBe('repeated');
    const other = await useNode();
    await other.allocate('10:00');
    for (const answer of [
      await other.allocate('10:00'),
      await other.allocate('10:00', 1),
      await other.tell('allocate'),
    ]) {
      expect(answer.body).toMatchObject({
        outcome: 'repeated',
        allocation: { generation: 1, allocated_at: at('10:00') },
      });
    }
    await other.release('12:00');
    for (const answer of [
      await other.release('12:00'),
      await other.release('12:00', 1),
      await other.tell('release'),
      await other.allocate('10:00'),
    ]) {
      expect(answer.body).toMatchObject({ outcome: 'repeated', allocation: { released_at: at('12:00') } });
    }
    expect(await other.intervals()).toEqual(['10:00–12:00']);
  });

  it('form one interval when the release arrives before its allocation', async () => {
    const { allocate, release, intervals, node } = await useNode();
    const early = await release('12:00');
    expect(early.body).toMatchObject({ outcome: 'recorded', node: { status: 'registered' } });
    expect(await intervals()).toEqual([]);
    expect((await allocate('10:00')).body.node.status).toBe('released');
    expect(await intervals()).toEqual(['10:00–12:00']);
    await release('15:00');
    await allocate('13:00');
    await allocate('16:00');
    expect(await intervals()).toEqual(['10:00–12:00', '13:00–15:00', '16:00–']);
    expect((await node()).status).toBe('allocated');
  });

  it('keep an allocation of now running after an earlier release', async () => {
    const { tell, node } = await useNode();
    await tell('release');
    await tell('allocate');
    expect((await node()).status).toBe('allocated');
  });

  it('are accepted in any order when they have generations', async () => {
    const { allocate, release, intervals } = await useNode();
    await release('15:00', 2);
    await allocate('10:00', 1);
    await allocate('13:00', 2);
    await release('12:00', 1);
    await release('12:00', 1);
    expect(await intervals()).toEqual(['10:00–12:00', '13:00–15:00']);
  });

  it("reject a change of the node's GPUs and profile while it is allocated", async () => {
    const { path, allocate, release } = await useNode();
    const patch = (body: object) => api().ask(path, { method: 'PATCH', body });
    await allocate('10:00');
    for (const body of [{ gpus: 4 }, { hardware_profile: 'cpu' }]) expect((await patch(body)).status).toBe(409);
    expect((await patch({ address: '10.9.9.9', gpus: 8 })).status).toBe(200);
    await release('12:00');
    expect((await patch({ gpus: 4 })).body.gpus).toBe(4);
  });

  it('end when the node is deleted or its cluster archived', async () => {
    const one = await useNode();
    await one.allocate('10:00');
    await api().ask(one.path, { method: 'DELETE' });
    expect(await one.intervals()).toEqual([expect.stringMatching(/^10:00–2.*Z$/)]);
    const other = await useNode();
    await api().ask(`/v1/clusters/${other.cluster.id}/nodes`, { body: nodeBody('gpu-2') });
    await other.allocate('10:00');
    await api().ask(`/v1/clusters/${other.cluster.id}`, { method: 'DELETE' });
    expect(await other.intervals()).toEqual([expect.stringMatching(/^10:00–2.*Z$/)]);
    const { body } = await api().ask(`/v1/clusters/${other.cluster.id}`);
    expect(body).toMatchObject({ nodes_allocated: 0, nodes: [{ status: 'released' }, { status: 'registered' }] });
  });

  it('continue for the new organization when the cluster is moved', async () => {
    const { cluster, allocate, tell } = await useNode();
    const to = await api().organization('New Owners');
    await allocate('10:00');
    const path = `/v1/clusters/${cluster.id}`;
    expect((await api().ask(path, { method: 'PATCH', body: { organization_id: to.id } })).status).toBe(200);
    await tell('release');
    const [first = '', second = '', ...more] = await intervalsOf(api(), cluster.id);
    const [start, moved, owner] = [first.split('–')[0], first.split('–')[1]?.split(' ')[0], first.slice(-11)];
    expect([start, owner, more]).toEqual([at('10:00'), 'Water Works', []]);
    expect(second).toMatch(new RegExp(`^${moved}–.* New Owners$`));
    const rows = await api().db
      .sql`select 1 from audit_log where target_id = ${cluster.id} and action = 'cluster.moved'`;
    expect(rows).toHaveLength(2);
  });
});

describe('concurrent cluster requests', () => {
  it('store one allocation of eight, and one release of eight', async () => {
    const { tell, intervals } = await useNode();
    for (const kind of ['allocate', 'release']) {
      const answers = await Promise.all(Array.from({ length: 8 }, () => tell(kind)));
      expect(answers.map(({ status }) => status)).toEqual(Array(8).fill(200));
      expect(answers.filter(({ body }) => body.outcome === 'recorded')).toHaveLength(1);
      expect(new Set(answers.map(({ body }) => JSON.stringify(body.allocation))).size).toBe(1);
    }
    expect(await intervals()).toHaveLength(1);
  });

  it('leave no allocation behind a deletion', async () => {
    for (let round = 0; round < 5; round += 1) {
      const { cluster, tell } = await useNode();
      const [deleted, ...events] = await Promise.all([
        api().ask(`/v1/clusters/${cluster.id}`, { method: 'DELETE' }),
        tell('allocate'),
        tell('allocate'),
        tell('heartbeat'),
      ]);
      expect(deleted.status).toBe(204);
      for (const { status } of events) expect([200, 204, 409]).toContain(status);
      const { body } = await api().ask(`/v1/clusters/${cluster.id}`);
      expect([body.status, body.nodes_allocated]).toEqual(['archived', 0]);
      for (const interval of await intervalsOf(api(), cluster.id)) expect(interval).not.toMatch(/– /);
    }
  });

  it("move two clusters into each other's organization", async () => {
    const [one, other] = [await makeCluster(api()), await makeCluster(api())];
    const move = (id: string, to: string) =>
      api().ask(`/v1/clusters/${id}`, { method: 'PATCH', body: { organization_id: to } });
    const answers = await Promise.all([move(one.id, other.organization_id), move(other.id, one.organization_id)]);
    expect(answers.map(({ status }) => status)).toEqual([200, 200]);
  });
});
