import { describe, expect, it } from 'vitest';
import type { Body } from '#test/inference/inference-gateway.ts';
import { useWebGateway } from '#test/web/web-gateway.ts';

/** Targets that no address leads to, whatever a module declares and whoever registers a node. */

const web = useWebGateway();

const node = { name: 'n0', address: '127.0.0.1', ssh_port: 1, hardware_profile: 'plain' };

/** A run that has declared this port of a node at this address. */
async function declared(address: string, port: number): Promise<Body> {
  const cluster = await web.makeCluster({ nodes: [{ ...node, address }] });
  const { id } = await web.applied(port, { cluster });
  return (await web.ask(`/v1/runs/run_${id.replaceAll('-', '')}`)).body;
}

describe('the web address of a run', () => {
  it.each(['127.0.0.1', '127.0.0.2', 'localhost', '::1', '0.0.0.0'])(
    'is rejected with url_problem for the gateway itself and its database: %s',
    async (address) => {
      const { port } = new URL(web.gateway.databaseUrl);
      const [own, store] = [await declared(address, web.webPort), await declared(address, Number(port))];
      expect([own.url, own.url_problem]).toEqual([null, 'web_port is used by the gateway itself']);
      expect([store.url, store.url_problem]).toEqual([
        null,
        expect.stringContaining('a service that the gateway depends on'),
      ]);
      const allowed = await declared(address, await web.application());
      expect([allowed.url, allowed.url_problem]).toEqual([expect.stringContaining('https://'), null]);
    },
  );

  it.each(['169.254.169.254', '168.63.129.16', '100.100.100.200', 'fd00:ec2::254', 'fe80::1'])(
    'is rejected with url_problem for an address reserved for cloud services: %s',
    async (address) => {
      const run = await declared(address, 80);
      expect([run.url, run.url_problem]).toEqual([null, expect.stringContaining('reserved for cloud services')]);
    },
  );

  it('is rejected with url_problem for the SSH port of any registered node, also of another organization', async () => {
    const other = (await web.ask('/v1/organizations', { body: { name: 'Neighbours' } })).body;
    const nodes = [{ ...node, address: '203.0.113.1', private_address: '127.0.0.1', ssh_port: 2022 }];
    await web.makeCluster({ organization_id: other.id, nodes });
    for (const address of ['127.0.0.1', '203.0.113.1']) {
      const run = await declared(address, 2022);
      expect([run.url, run.url_problem]).toEqual([null, 'web_port is the port of the SSH server of a node']);
    }
    expect((await declared('127.0.0.1', 1)).url_problem).toBe("web_port is the port of the node's SSH server");
    expect((await declared('127.0.0.1', 2023)).url_problem).toBeNull();
  });
});
