import { createServer, type ServerResponse } from 'node:http';
import { packOf } from '#test/stacks/raw-zip.ts';
import { eventually } from '#test/inference/inference-gateway.ts';

/** Stacks that wait where a test wants: in `init`, in `plan`, or in `apply` for a file on their node. */

const moduleZip = packOf({ 'main.tf': 'output "x" {\n  value = 1\n}\n' });
const emptyState = {
  version: 4,
  terraform_version: '1.4.0',
  serial: 1,
  lineage: 'held',
  outputs: {},
  resources: [],
  check_results: null,
};

/** An HTTP server whose answers a test holds back: `init` asks it for a module, `plan` for a state. */
export class Gates {
  readonly url: string;
  readonly #server;
  readonly #held = new Map<string, ServerResponse[]>();
  readonly #open = new Set<string>();

  private constructor(server: ReturnType<typeof createServer>, port: number) {
    this.#server = server;
    this.url = `http://127.0.0.1:${port}`;
    server.on('request', ({ method, url = '' }, response) => {
      const path = url.split('?')[0] ?? '';
      if (method !== 'GET' || this.#open.has(path)) this.#answer(path, response);
      else this.#held.set(path, [...(this.#held.get(path) ?? []), response]);
    });
  }

  static async start(): Promise<Gates> {
    const server = createServer();
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const address = server.address();
    if (address === null || typeof address === 'string') throw new Error('it does not listen');
    return new Gates(server, address.port);
  }

  /** Waits until somebody waits there. */
  async reached(path: string): Promise<void> {
    await eventually(async () => (this.#held.get(path)?.length ?? 0) > 0);
  }

  open(path: string): void {
    this.#open.add(path);
    for (const response of this.#held.get(path) ?? []) this.#answer(path, response);
    this.#held.delete(path);
  }

  #answer(path: string, response: ServerResponse): void {
    if (path.endsWith('.zip')) response.setHeader('content-type', 'application/zip').end(moduleZip);
    else response.setHeader('content-type', 'application/json').end(JSON.stringify(emptyState));
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }
}

const connection = `connection {
    type        = "ssh"
    host        = self.input.node.address
    port        = self.input.node.ssh_port
    user        = self.input.node.ssh_user
    host_key    = self.input.node.host_key
    private_key = file("\${path.root}/.platform/id")
    agent       = false
    timeout     = "20s"
  }`;

/**
 * Prints 400 lines around a wait for the file `go`; `times` has a line for each time that it was applied. It lives on
 * behind the last: Terraform drops what it has not read of a program that has ended.
 */
export function waitingStack(more = ''): string {
  return `
variable "folder" { type = string }
variable "nodes" {
  type = list(object({ name = string, address = string, ssh_port = number, ssh_user = string, host_key = string }))
}
resource "terraform_data" "first" {
  input = { node = var.nodes[0], folder = var.folder }
  ${connection}
  provisioner "remote-exec" {
    inline = ["set -eu", "mkdir -p '\${self.input.folder}'", "echo once >>'\${self.input.folder}/times'",
      "touch '\${self.input.folder}/software'"]
  }
  provisioner "remote-exec" {
    when   = destroy
    inline = ["rm -f '\${self.input.folder}/software'"]
  }
}
resource "terraform_data" "second" {
  depends_on = [terraform_data.first]
  input      = { node = var.nodes[0], folder = var.folder }
  ${connection}
  provisioner "remote-exec" {
    inline = ["for i in $(seq 1 200); do echo \\"row $i.\\"; done",
      "until [ -e '\${self.input.folder}/go' ]; do sleep 0.1; done",
      "for i in $(seq 201 400); do echo \\"row $i.\\"; done", "sleep 1"]
  }
}
output "folder" { value = var.folder }
${more}`;
}

/** Waits in `init` for the gate /<name>.zip. */
export const heldInInit = ({ url }: Gates, name: string): string =>
  waitingStack(`module "held" { source = "${url}/${name}.zip" }\n`);

/** Waits in `plan` for the gate /<name>. */
export const heldInPlan = ({ url }: Gates, name: string): string =>
  waitingStack(`data "terraform_remote_state" "held" {
  backend = "http"
  config  = { address = "${url}/${name}" }
}
`);
