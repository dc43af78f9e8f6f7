import { describe, expect, it } from 'vitest';
import { intervalsOf, makeCluster, nodeBody } from '#test/api/cluster-support.ts';
import { type Answer, useApi } from '#test/api/test-api.ts';

const api = useApi();

const at = (clock: string): string => `2026-03-10T${clock}:00.000Z`;
const wrong = '2015-03-01T00:00:00.000Z';
const reason = 'allocated with the wrong year';
const past = { reason, retroactive: true };

/** A cluster with a node, and what is done to it. */
async function useNode() {
  const cluster = await makeCluster(api());
  const [path, nodeId] = [`/v1/clusters/${cluster.id}`, cluster.nodes[0].id as string];
  const post = (rest: string, body: object): Promise<Answer> =>
    api().ask(`${path}/nodes/${rest}`, { method: 'POST', body });
  return {
    cluster,
    path,
    nodeId,
    allocate: (time: string, generation?: number) => post('gpu-1/allocate', { at: time, generation }),
    release: (time: string, generation?: number) => post('gpu-1/release', { at: time, generation }),
    amend: (body: object, generation: number | string = 1, node = 'gpu-1') =>
      post(`${node}/allocations/${generation}/amend`, body),
    void: (body: object = past, generation: number | string = 1, node = 'gpu-1') =>
      post(`${node}/allocations/${generation}/void`, body),
    intervals: async () => (await intervalsOf(api(), cluster.id)).map((text) => text.replace(' Water Works', '')),
    node: async () => (await api().ask(path)).body.nodes[0],
    allocations: async (query = '') => (await api().ask(`${path}/allocations${query}`)).body,
    audited: () => api().db.sql`
      select action, before, after from audit_log where target_id = ${nodeId} and action like '%allocation_%'
      order by id`,
  };
}

const problemOf = ({ status, body }: Answer) => [status, body.error?.details?.[0]?.field ?? body.error?.message];

describe('an event at another time than the recorded one', () => {
  it('returns 409 with what is recorded, with and without a generation', async () => {
    const { allocate, release, intervals } = await useNode();
    await allocate(wrong);
    for (const answer of [await allocate(at('10:00')), await allocate(at('10:00'), 1)]) {
      expect([answer.status, answer.body.error.code]).toEqual([409, 'CONFLICT']);
      expect(answer.body.error.message).toContain(`Allocation 1 of this node is recorded from ${wrong} until now`);
    }
    await release(at('12:00'));
    for (const answer of [await release(at('11:00')), await release(at('11:00'), 1), await release(at('13:00'), 1)]) {
      expect(answer.status).toBe(409);
      expect(answer.body.error.message).toContain(`recorded from ${wrong} to ${at('12:00')}`);
    }
    expect(await intervals()).toEqual([`${wrong}–${at('12:00')}`]);
  });
});

describe('an amended allocation', () => {
  it('has the new hours, keeps the old ones in its history, and is audited', async () => {
    const { allocate, release, amend, intervals, node, allocations, audited, nodeId, cluster } = await useNode();
    await allocate(wrong);
    const answer = await amend({ allocated_at: at('10:00'), ...past });
    const before = { allocated_at: wrong, released_at: null, estimated: false };
    const after = { ...before, allocated_at: at('10:00') };
    const expected = {
      node_id: nodeId,
      node_name: 'gpu-1',
      generation: 1,
      status: 'valid',
      ...after,
      amendments: [{ amended_at: expect.any(String), reason, before, after }],
    };
    expect([answer.status, answer.body]).toEqual([200, expected]);
    expect(await intervals()).toEqual([`${at('10:00')}–`]);
    expect((await node()).allocation.allocated_at).toBe(at('10:00'));
    expect((await release(at('12:00'))).body.outcome).toBe('recorded');
    expect(await intervals()).toEqual([`${at('10:00')}–${at('12:00')}`]);
    expect((await allocations()).data).toEqual([{ ...expected, released_at: at('12:00') }]);
    const fixed = { cluster_id: cluster.id, generation: 1 };
    expect(await audited()).toEqual([
      {
        action: 'cluster_node.allocation_amended',
        before: { ...fixed, ...before },
        after: { ...fixed, ...after, reason },
      },
    ]);
  });

  it('changes nothing when it has the times already', async () => {
    const { allocate, amend, audited } = await useNode();
    await allocate(at('10:00'));
    for (const _ of [1, 2]) await amend({ released_at: at('12:00'), ...past });
    expect((await amend({ allocated_at: at('10:00'), reason })).body.amendments).toHaveLength(1);
    expect(await audited()).toHaveLength(1);
  });

  it('runs again after its release is withdrawn', async () => {
    const { allocate, release, amend, intervals, node } = await useNode();
    await allocate(at('10:00'));
    await release(at('12:00'));
    expect((await amend({ released_at: null, ...past })).status).toBe(200);
    expect([(await node()).status, await intervals()]).toEqual(['allocated', [`${at('10:00')}–`]]);
  });

  it('changes the costs of its report', async () => {
    const { cluster, allocate, release, amend } = await useNode();
    await allocate(at('10:00'));
    await release(at('12:00'));
    const hours = async () => {
      const path = `/v1/billing/costs?month=2026-03&organization_id=${cluster.organization_id}`;
      return (await api().ask(path)).body.organizations.flatMap((one: Answer['body']) =>
        one.clusters.map(({ node_hours: value }: { node_hours: number }) => value),
      );
    };
    expect(await hours()).toEqual([2]);
    await amend({ released_at: at('10:30'), ...past });
    expect(await hours()).toEqual([0.5]);
  });

  it('of a removed node or an archived cluster is named by the id of the node', async () => {
    const { cluster, path, nodeId, allocate, amend, intervals, allocations } = await useNode();
    await allocate(wrong);
    await api().ask(`${path}/nodes/gpu-1`, { method: 'DELETE' });
    expect(problemOf(await amend({ released_at: null, ...past }, 1, nodeId))).toEqual([400, 'released_at']);
    expect((await amend({ allocated_at: at('10:00'), ...past })).status).toBe(404);
    const times = { allocated_at: at('10:00'), released_at: at('12:00') };
    expect((await amend({ ...times, ...past }, 1, nodeId)).status).toBe(200);
    await api().ask(`/v1/clusters/${cluster.id}`, { method: 'DELETE' });
    expect((await amend({ released_at: at('11:00'), ...past }, 1, nodeId)).body.amendments).toHaveLength(2);
    expect(await intervals()).toEqual([`${at('10:00')}–${at('11:00')}`]);
    expect((await allocations(`?node=${nodeId}`)).pagination.total).toBe(1);
  });
});

describe('a voided allocation', () => {
  it('has no hours, keeps its times, and frees the node', async () => {
    const { allocate, release, void: cancel, amend, intervals, node, allocations, audited } = await useNode();
    await allocate(wrong);
    const { status, body } = await cancel();
    const before = { allocated_at: wrong, released_at: null, estimated: false };
    expect([status, body]).toMatchObject([
      200,
      { status: 'voided', ...before, amendments: [{ reason, before, after: null }] },
    ]);
    expect([await intervals(), (await node()).status]).toEqual([[], 'registered']);
    expect((await cancel()).body.amendments).toHaveLength(1);
    expect((await amend({ allocated_at: at('10:00'), ...past })).status).toBe(409);
    expect((await allocate(wrong, 1)).status).toBe(409);
    expect((await release(at('12:00'), 1)).status).toBe(409);
    expect((await allocate(at('10:00'))).body.allocation.generation).toBe(2);
    expect(await intervals()).toEqual([`${at('10:00')}–`]);
    expect((await allocations()).data.map((one: Answer['body']) => [one.generation, one.status])).toEqual([
      [2, 'valid'],
      [1, 'voided'],
    ]);
    expect(await audited()).toMatchObject([
      { action: 'cluster_node.allocation_voided', after: { voided: true, reason } },
    ]);
  });

  it('gives its hours to an allocation that it overlapped', async () => {
    const { allocate, release, void: cancel, intervals } = await useNode();
    await allocate(at('10:00'), 1);
    await release(at('14:00'), 1);
    await allocate(at('12:00'), 2);
    await release(at('15:00'), 2);
    expect(await intervals()).toEqual([`${at('10:00')}–${at('14:00')}`, `${at('14:00')}–${at('15:00')}`]);
    await cancel();
    expect(await intervals()).toEqual([`${at('12:00')}–${at('15:00')}`]);
  });
});

describe('a rejected amendment', () => {
  it.each([
    [{ ...past }, 'allocated_at'],
    [{ allocated_at: at('11:00'), retroactive: true }, 'reason'],
    [{ allocated_at: at('11:00'), ...past, reason: ' ' }, 'reason'],
    [{ allocated_at: at('11:00'), reason }, 'retroactive'],
    [{ allocated_at: '2026-03-10', ...past }, 'allocated_at'],
    [{ allocated_at: null, ...past }, 'allocated_at'],
    [{ released_at: at('10:00'), ...past }, 'released_at'],
    [{ released_at: '2099-01-01T00:00:00Z', ...past }, 'released_at'],
    [{ allocated_at: '2099-01-01T00:00:00Z', released_at: null, ...past }, 'allocated_at'],
    [{ allocated_at: at('11:00'), ...past, gpus: 4 }, 'gpus'],
  ])('returns 400 and changes nothing: %j', async (body, field) => {
    const { allocate, release, amend, intervals } = await useNode();
    await allocate(at('10:00'));
    await release(at('12:00'));
    expect(problemOf(await amend(body))).toEqual([400, field]);
    expect(await intervals()).toEqual([`${at('10:00')}–${at('12:00')}`]);
  });

  it('returns 409 when it would overlap another allocation', async () => {
    const { allocate, release, amend, intervals } = await useNode();
    await allocate(at('10:00'));
    await release(at('12:00'));
    await allocate(at('14:00'));
    for (const body of [{ released_at: at('14:30') }, { released_at: null }]) {
      const answer = await amend({ ...body, ...past });
      expect(answer.status).toBe(409);
      expect(answer.body.error.message).toContain(`Allocation 2 of this node from ${at('14:00')} until now overlaps`);
    }
    expect(await intervals()).toEqual([`${at('10:00')}–${at('12:00')}`, `${at('14:00')}–`]);
  });

  it('returns 409 when only the release was reported, which can be voided', async () => {
    const { release, amend, void: cancel } = await useNode();
    await release(at('12:00'));
    expect((await amend({ allocated_at: at('10:00'), ...past })).status).toBe(409);
    expect((await cancel({ reason })).body).toMatchObject({ status: 'voided', released_at: at('12:00') });
  });

  it('returns 404 for a missing allocation or node, and for a number that is none', async () => {
    const { allocate, amend, void: cancel } = await useNode();
    await allocate(at('10:00'));
    for (const answer of [
      await cancel(past, 2),
      await cancel(past, 1, 'gpu-9'),
      await amend({ released_at: null, ...past }, 9),
    ])
      expect(answer.status).toBe(404);
    for (const text of ['0', 'x', '1.5']) expect((await cancel(past, text)).status).toBe(400);
  });

  it('needs no permission for the past when only this month changes', async () => {
    const { allocate, amend, void: cancel } = await useNode();
    const now = Date.now();
    const [start, later] = [now - 2000, now - 1000].map((time) => new Date(time).toISOString());
    await allocate(start ?? '');
    // In the first seconds of a month the change may reach into the month before.
    const isNewMonth = new Date(now - 2000).getUTCMonth() !== new Date().getUTCMonth();
    if (isNewMonth) return;
    expect((await amend({ allocated_at: later, reason })).status).toBe(200);
    expect((await cancel({ reason })).status).toBe(200);
  });

  it('returns 403 to members, who can read allocations', async () => {
    const organization = await api().organization();
    const cluster = await makeCluster(api(), { organization_id: organization.id, nodes: [nodeBody()] });
    await api().ask(`/v1/clusters/${cluster.id}/nodes/gpu-1/allocate`, { method: 'POST', body: { at: at('10:00') } });
    const key = organization.key;
    const path = `/v1/clusters/${cluster.id}/nodes/gpu-1/allocations/1/void`;
    expect((await api().ask(path, { method: 'POST', body: past, key })).status).toBe(403);
    expect((await api().ask(`/v1/clusters/${cluster.id}/allocations`, { key })).body.data).toHaveLength(1);
  });
});
