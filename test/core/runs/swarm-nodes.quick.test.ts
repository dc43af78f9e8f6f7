import { afterEach, describe, expect, it, vi } from 'vitest';
import { createSwarmNodes } from '#core/runs/runner/docker/swarm-nodes.ts';

afterEach(() => vi.restoreAllMocks());

/** A name whose addresses a test changes, asked anew at each call. */
function follow() {
  const name: { addresses: readonly string[] | Error } = { addresses: [] };
  const closed: string[] = [];
  let nowMs = 0;
  vi.spyOn(Date, 'now').mockImplementation(() => (nowMs += 60_000));
  const nodes = createSwarmNodes(
    { host: 'tasks.gate', port: 2375 },
    (address) => ({ address, close: () => void closed.push(address) }),
    async () => {
      if (name.addresses instanceof Error) throw name.addresses;
      return name.addresses;
    },
  );
  return { name, nodes, closed };
}

describe('the gates of a swarm', () => {
  it('stay as known when their lookup fails, and the problem is reported', async () => {
    const { name, nodes, closed } = follow();
    name.addresses = ['10.0.1.2', '10.0.1.3'];
    const known = await nodes.find();
    name.addresses = Object.assign(new Error('queryA ESERVFAIL'), { code: 'ESERVFAIL' });
    expect(await nodes.find()).toEqual(known);
    expect(nodes.trouble()).toContain('tasks.gate has no address (ESERVFAIL)');
    name.addresses = ['10.0.1.2', '10.0.1.3'];
    expect(await nodes.find()).toEqual(known);
    expect([nodes.trouble(), closed]).toEqual([null, []]);
  });

  it('are added and removed with their addresses, and unchanged ones are kept', async () => {
    const { name, nodes, closed } = follow();
    name.addresses = ['10.0.1.2', '10.0.1.3'];
    const [first] = await nodes.find();
    name.addresses = ['10.0.1.4', '10.0.1.2'];
    const later = await nodes.find();
    expect(later.map(({ address }) => address)).toEqual(['10.0.1.2', '10.0.1.4']);
    expect(later[0]).toBe(first);
    expect(closed).toEqual(['10.0.1.3']);
    nodes.close();
    expect(closed).toEqual(['10.0.1.3', '10.0.1.2', '10.0.1.4']);
  });
});
