import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startGateway, type TestGateway } from '#test/gateway.ts';
import { signInVisitor, type Visitor } from '#test/portal/visitor.ts';

let gateway: TestGateway;
let admin: Visitor;

beforeAll(async () => {
  gateway = await startGateway();
  admin = await signInVisitor(gateway);
});
afterAll(() => gateway.stop());

async function made<Made>(path: string, body: object): Promise<Made> {
  const answer = await gateway.request(path, { body });
  if (answer.status >= 300) throw new Error(await answer.text());
  return (await answer.json()) as Made;
}

describe('the allocations of a cluster', () => {
  it('are listed, amended and voided by forms', async () => {
    const node = { name: 'gpu-1', address: '10.0.0.7', hardware_profile: 'h100-8x', gpus: 8 };
    const { id, nodes } = await made<{ id: string; nodes: { id: string }[] }>('/v1/clusters', {
      name: 'research',
      nodes: [node],
    });
    const [path, nodeId] = [`/portal/clusters/${id}`, nodes[0]?.id ?? ''];
    await made(`/v1/clusters/${id}/nodes/gpu-1/allocate`, { at: '2015-03-10T10:00:00Z' });
    const allocation = `${path}/nodes/${nodeId}/allocations/1`;
    const list = `${path}/allocations`;
    expect((await admin.get(list)).text).toContain('gpu-1, allocation 1: amend, void');
    const times = { allocated_at: '2026-03-10T10:00:00.000Z', released_at: '2026-03-10T12:00:00.000Z' };
    const change = { ...times, change: 'amend', reason: '<b>wrong</b> day' };
    const early = await admin.post(allocation, change);
    expect([early.status, early.text.includes('This changes costs from')]).toEqual([400, true]);
    const allowed = { ...change, [`retroactive-${nodeId}-1`]: 'yes' };
    const bad = await admin.post(allocation, { ...allowed, released_at: 'noon' });
    expect([bad.status, bad.text.includes(`id="released_at-${nodeId}-1-problem"`)]).toEqual([400, true]);
    expect((await admin.post(allocation, allowed)).headers.location).toBe(`${list}?notice=amended`);
    const amended = (await admin.get(list)).text;
    expect([amended.includes('&lt;b&gt;wrong&lt;/b&gt; day'), amended.includes('became')]).toEqual([true, true]);
    const end = await admin.post(allocation, { ...allowed, change: 'void' });
    expect(end.headers.location).toBe(`${list}?notice=voided`);
    expect((await admin.get(list)).text).not.toContain('gpu-1, allocation 1: amend, void');
  });
});
