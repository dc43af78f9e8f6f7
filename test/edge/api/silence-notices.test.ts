import { beforeEach, describe, expect, it } from 'vitest';
import { parseId } from '#base/id.ts';
import { makeCluster, nodeBody } from '#test/api/cluster-support.ts';
import { type TestApi, useApi } from '#test/api/test-api.ts';

/** Alerts about nodes that stop sending heartbeats, with the period that applies without a setting. */

const api = useApi();

async function useNodes(names: readonly string[]) {
  const organization = await api().organization();
  const nodes = names.map((name) => nodeBody(name));
  const cluster = await makeCluster(api(), { organization_id: organization.id, nodes });
  const path = (name: string): string => `/v1/clusters/${cluster.id}/nodes/${name}`;
  const at = new Date(Date.now() - 10 * 3_600_000).toISOString();
  for (const name of names) await api().ask(`${path(name)}/allocate`, { method: 'POST', body: { at } });
  return {
    cluster,
    path,
    /** The last heartbeat of these nodes was so many minutes ago. */
    heard: async (minutesAgo: number, some: readonly string[] = names): Promise<void> => {
      const seen = new Date(Date.now() - minutesAgo * 60_000).toISOString();
      for (const name of some) {
        await api().db.sql`
          update cluster_nodes set last_seen_at = ${seen} where cluster_id = ${parseId('cluster', cluster.id)} and name = ${name}`;
      }
    },
    /** The nodes have been heard of for so many minutes. */
    heardFor: (minutes: number) => api().db.sql`
      update silent_nodes set heard_since = heard_since - make_interval(mins => ${minutes})`,
    alerts: async (): Promise<unknown[]> => {
      const rows = await api().db.sql<{ type: string; data: { nodes: { name: string }[]; count: number } }[]>`
        select type, data from alert_events
        where organization_id = ${parseId('org', organization.id)} and type like 'cluster.%' order by id`;
      return rows.map(({ type, data }) => [type, data.count, data.nodes.map(({ name }) => name)]);
    },
  };
}

type Watching = Pick<TestApi, 'clusters'>;

/** Checks each minute for so many minutes. */
async function watch(minutes: number, { clusters }: Watching = api()): Promise<void> {
  for (let minute = 0; minute < minutes; minute += 1) {
    await clusters.notifySilence();
    api().turnClock(60_000);
  }
}

beforeEach(async () => {
  await api().db.sql`delete from silent_nodes`;
  await api().db.sql`update cluster_nodes set last_seen_at = null`;
  // The checks of the test before this one are a gap ago.
  api().turnClock(600_000);
});

describe('nodes that fall silent', () => {
  it('are reported once, in one alert for their cluster, and once more when they are back', async () => {
    const { cluster, heard, heardFor, alerts } = await useNodes(['gpu-1', 'gpu-2', 'gpu-3']);
    await heard(10);
    await watch(17);
    expect(await alerts()).toEqual([]);
    await heard(16, ['gpu-1', 'gpu-2']);
    const second = api().secondRooms();
    await watch(17, second);
    await Promise.all([api().clusters.notifySilence(), second.clusters.notifySilence()]);
    expect(await alerts()).toEqual([['cluster.nodes_silent', 2, ['gpu-1', 'gpu-2']]]);
    const [event] = await api().db.sql`select data from alert_events where type = 'cluster.nodes_silent'`;
    expect(event?.['data']).toMatchObject({
      cluster_id: cluster.id,
      cluster: cluster.name,
      silence_seconds: 900,
      nodes: [{ id: cluster.nodes[0].id }, { id: cluster.nodes[1].id }],
    });
    await heard(0, ['gpu-1']);
    await second.clusters.notifySilence();
    await heardFor(14);
    await second.clusters.notifySilence();
    expect(await alerts()).toHaveLength(1);
    await heardFor(1);
    await Promise.all([second.clusters.notifySilence(), second.clusters.notifySilence()]);
    expect((await alerts()).slice(1)).toEqual([['cluster.nodes_back', 1, ['gpu-1']]]);
  });

  it('are not reported again and again when they report too rarely', async () => {
    const { heard, heardFor, alerts } = await useNodes(['gpu-1']);
    await heard(20);
    await watch(17);
    for (let round = 0; round < 3; round += 1) {
      await heard(0);
      await watch(1);
      await heardFor(10);
      await heard(16);
      await watch(1);
    }
    expect(await alerts()).toEqual([['cluster.nodes_silent', 1, ['gpu-1']]]);
  });

  it('are not reported before heartbeats could arrive for a whole period, also after a gap', async () => {
    const { heard, alerts } = await useNodes(['gpu-1']);
    await heard(60);
    await watch(14);
    api().turnClock(300_000);
    await watch(14);
    expect(await alerts()).toEqual([]);
    await watch(3);
    expect(await alerts()).toHaveLength(1);
  });

  it('are reported when their hours end, and when the next heartbeat continues the hours', async () => {
    const { path, heard, heardFor, alerts } = await useNodes(['gpu-1']);
    const rooms = api().secondRooms({ nodeSilenceMs: 300_000 });
    await heard(6);
    await watch(7, rooms);
    expect(await rooms.clusters.endSilentNodes()).toBe(1);
    expect(await alerts()).toEqual([['cluster.nodes_silent', 1, ['gpu-1']]]);
    await watch(1, rooms);
    await api().ask(`${path('gpu-1')}/heartbeat`, { method: 'POST' });
    await watch(1, rooms);
    await heardFor(5);
    await watch(1, rooms);
    expect((await alerts()).slice(1)).toEqual([['cluster.nodes_back', 1, ['gpu-1']]]);
  });

  it('are not reported if they never sent a heartbeat, or are released, before or after the report', async () => {
    const { path, heard, alerts } = await useNodes(['gpu-1', 'gpu-2', 'gpu-3']);
    await heard(60, ['gpu-2', 'gpu-3']);
    await api().ask(`${path('gpu-2')}/release`, { method: 'POST', body: {} });
    await watch(17);
    expect(await alerts()).toEqual([['cluster.nodes_silent', 1, ['gpu-3']]]);
    await api().ask(`${path('gpu-3')}/release`, { method: 'POST', body: {} });
    await watch(2);
    expect(await api().db.sql`select * from silent_nodes`).toEqual([]);
    expect(await alerts()).toHaveLength(1);
  });

  it('are reported to the new organization of a moved cluster too', async () => {
    const { cluster, heard, alerts } = await useNodes(['gpu-1']);
    const { id: organization_id } = await api().organization();
    await heard(20);
    await watch(17);
    await api().ask(`/v1/clusters/${cluster.id}`, { method: 'PATCH', body: { organization_id } });
    await watch(2);
    const theirs = await api().db.sql<{ type: string }[]>`
      select type from alert_events where organization_id = ${parseId('org', organization_id)} and type like 'cluster.%'`;
    expect(theirs.map(({ type }) => type)).toEqual(['cluster.nodes_silent']);
    expect(await alerts()).toHaveLength(1);
  });
});
