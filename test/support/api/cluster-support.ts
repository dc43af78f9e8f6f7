import { makeKeyPair } from '#core/clusters/ssh-keys.ts';
import type { Answer, TestApi } from './test-api.ts';

export const hostKey = makeKeyPair('x').publicKey;

/** A node as an operator adds it. */
export function nodeBody(name = 'gpu-1', more: object = {}): Record<string, unknown> {
  return {
    name,
    address: '10.0.0.7',
    private_address: '192.168.7.7',
    ssh_port: 2222,
    ssh_user: 'ops',
    host_key: `${hostKey} root@gpu-1`,
    hardware_profile: 'h100-8x',
    gpus: 8,
    ...more,
  };
}

let count = 0;
/** A name that no other cluster of this test file has. */
export const newName = (): string => `cluster-${(count += 1)}`;

/** A new cluster, of a new organization where none is given. */
export async function makeCluster(api: TestApi, body: object = {}): Promise<Answer['body']> {
  const { id } = 'organization_id' in body ? { id: undefined } : await api.organization();
  const whole = { name: newName(), organization_id: id, nodes: [nodeBody()], ...body };
  const answer = await api.ask('/v1/clusters', { body: whole });
  if (answer.status !== 201) throw new Error(JSON.stringify(answer.body));
  return answer.body;
}

/** Intervals of a cluster, oldest first, in ISO times: "2026-01-01T10:00:00.000Z–" while it is held. */
export async function intervalsOf(api: TestApi, clusterId: string): Promise<string[]> {
  const rows = await api.db.sql<{ started: string; ended: string | null; estimated: boolean; organization: string }[]>`
    select i.started_ms as started, i.ended_ms as ended, i.estimated, s.organization_name as organization
    from usage_intervals i join usage_snapshots s on s.id = i.snapshot_id
    where s.cluster_id = ${clusterId} order by i.started_ms, i.node_id`;
  const iso = (ms: string) => new Date(Number(ms)).toISOString();
  return rows.map(
    ({ started, ended, estimated, organization }) =>
      `${iso(started)}–${ended === null ? '' : iso(ended)}${estimated ? '?' : ''} ${organization}`,
  );
}
