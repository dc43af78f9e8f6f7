import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { Body } from '../../edge/inference/inference-gateway.ts';
import { type RunGateway, usePlace } from '../terraform/run-gateway.ts';
import { useRunFloor } from './run-floor.ts';

const floor = useRunFloor();
const newPlace = usePlace();

let count = 0;
/** A cluster of the two nodes, which it may enter. */
async function newCluster(gateway: RunGateway): Promise<Body> {
  const { id } = await gateway.made('/v1/organizations', { name: `Organization ${(count += 1)}` });
  const nodes = floor.nodes.slice(0, 2).map((node) => ({ ...node, private_address: node.address }));
  const cluster = await gateway.made('/v1/clusters', { name: `docker-${count}`, organization_id: id, nodes });
  floor.authorize(cluster.access_identity.public_key);
  return cluster;
}

/** Writes a file onto every node, and takes it away. */
const everyNode = `
variable "folder" { type = string }
variable "nodes" {
  type = list(object({ name = string, private_address = string, ssh_port = number, ssh_user = string, host_key = string }))
}
resource "terraform_data" "software" {
  count = length(var.nodes)
  input = { node = var.nodes[count.index], folder = var.folder }
  connection {
    type        = "ssh"
    host        = self.input.node.private_address
    port        = self.input.node.ssh_port
    user        = self.input.node.ssh_user
    host_key    = self.input.node.host_key
    private_key = file("\${path.root}/.platform/id")
    agent       = false
    timeout     = "20s"
  }
  provisioner "remote-exec" {
    inline = ["touch '\${self.input.folder}/\${self.input.node.name}'"]
  }
  provisioner "remote-exec" {
    when   = destroy
    inline = ["rm '\${self.input.folder}/\${self.input.node.name}'"]
  }
}
output "folder" { value = var.folder }
`;

describe('a stack that is applied in containers', () => {
  it('puts its software onto two nodes, takes it away, and leaves nothing on the host', async () => {
    const place = await newPlace();
    const gateway = await place.start({ home: floor.home(), env: floor.env });
    const cluster = await newCluster(gateway);
    expect((await gateway.upload('every', everyNode)).status).toBe(201);
    const folder = floor.folder();
    const run = await gateway.apply('every', cluster.id, { folder });
    const applied = await gateway.becomes(run.id, 'APPLIED');
    expect(applied.outputs.folder.value).toBe(folder);
    expect(['n0', 'n1'].map((name) => existsSync(join(folder, name)))).toEqual([true, true]);
    await floor.leavesNothing();
    const destroying = await gateway.made(`/v1/runs/${run.id}/destroy`);
    await gateway.becomes(destroying.id, 'DESTROYED');
    expect(['n0', 'n1'].map((name) => existsSync(join(folder, name)))).toEqual([false, false]);
    await floor.leavesNothing();
    expect(floor.refused).toEqual([]);
    expect(readFileSync).toBeDefined();
  });
});
