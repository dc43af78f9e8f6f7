import { createServer } from 'node:net';
import { afterEach, beforeAll, expect, it } from 'vitest';
import { freePort } from '#test/free-port.ts';
import type { Body } from '#test/inference/inference-gateway.ts';
import { nodeOf, type Site, useSites } from '#test/terraform/run-gateway.ts';
import { SshServer } from '#test/terraform/terraform.ts';

/** Errors of a run about nodes that it cannot log in to: the cause, and how to fix it. */

const newSite = useSites();
const cleanups: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0)) await cleanup();
});

const stack = `
variable "nodes" {
  type = list(object({ name = string, address = string, ssh_port = number, ssh_user = string, host_key = string }))
}
variable "ssh_private_key" {
  type      = string
  sensitive = true
}
resource "terraform_data" "login" {
  input = var.nodes[0]
  connection {
    host        = self.input.address
    port        = self.input.ssh_port
    user        = self.input.ssh_user
    host_key    = self.input.host_key
    private_key = var.ssh_private_key
    agent       = false
    timeout     = "8s"
  }
  provisioner "remote-exec" { inline = ["true"] }
}
`;

/** Applies to one node. @returns the run that has ended */
async function applied({ gateway, organization }: Site, node: object, server: SshServer | null): Promise<Body> {
  const body = { name: `c${Math.random()}`.replace('.', ''), organization_id: organization.id, nodes: [node] };
  const cluster = await gateway.made('/v1/clusters', body);
  server?.authorize(cluster.access_identity.public_key);
  const { id } = await gateway.apply('login', cluster.id, {});
  return gateway.becomes(id, 'APPLIED', 'FAILED');
}

beforeAll(async () => {
  const { gateway } = await newSite();
  const { status, body } = await gateway.upload('login', stack);
  if (status !== 201) throw new Error(JSON.stringify(body));
});

const failure = ({ status, failure_code: code, failure_message: message }: Body): unknown => [status, code, message];
const says = (text: RegExp): unknown => ['FAILED', 'APPLY_FAILED', expect.stringMatching(text)];

it('names the closed port, the silent port, and the user whose file lacks the key', async () => {
  const site = await newSite();
  const closed = await freePort();
  const refused = await applied(site, nodeOf(site.place.server, { ssh_port: closed }), null);
  expect(failure(refused)).toEqual(
    says(
      new RegExp(
        `^remote-exec provisioner error \\(main\\.tf:\\d+\\): 127\\.0\\.0\\.1, port ${closed}, refused the connection: ` +
          "start its SSH server, or correct the node's address and ssh_port$",
      ),
    ),
  );

  // It reads, so that it sees who leaves, and never says a word.
  const silent = createServer((socket) => socket.on('error', () => undefined).resume());
  await new Promise<void>((resolve) => silent.listen(0, '127.0.0.1', resolve));
  cleanups.push(() => new Promise((resolve) => silent.close(resolve)));
  const address = silent.address();
  if (address === null || typeof address === 'string') throw new Error('it does not listen');
  const mute = await applied(site, nodeOf(site.place.server, { ssh_port: address.port }), null);
  expect(failure(mute)).toEqual(
    says(new RegExp(`127\\.0\\.0\\.1, port ${address.port}, did not respond .*check that the machine runs`)),
  );

  const locked = await applied(site, nodeOf(site.place.server), null);
  expect(failure(locked)).toEqual(
    says(/127\.0\.0\.1, port \d+, rejected the login of \S+: add the public_key of .* to ~\/\.ssh\/authorized_keys/),
  );
});

it('accepts an ECDSA host key on file, and explains the failure with an ed25519 one on file', async () => {
  const site = await newSite();
  const server = await SshServer.start(['rsa', 'ecdsa', 'ed25519']);
  cleanups.push(() => server.close());
  const node = (kind: 'ecdsa' | 'ed25519') => nodeOf(server, { host_key: server.hostKeyOf(kind) });
  expect(failure(await applied(site, node('ed25519'), server))).toEqual(
    says(
      /port \d+, has a different host key than the host_key of the node\. Terraform requests .*ssh_host_ecdsa_key\.pub/,
    ),
  );
  expect((await applied(site, node('ecdsa'), server)).status).toBe('APPLIED');
});
