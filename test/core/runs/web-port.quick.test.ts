import { expect, it } from 'vitest';
import { createMask } from '#core/runs/lifecycle/mask.ts';
import { type OutputContext, readOutputs } from '#core/runs/lifecycle/outputs.ts';

const context: OutputContext = {
  announced: null,
  nodes: [{ name: 'n0', sshPort: 2222 }],
  ownNode: '',
  mask: createMask([]),
};

/** Returns the web port of `terraform output -json`, and why it is invalid. */
function webOf(declared: Readonly<Record<string, unknown>>) {
  const outputs = Object.entries(declared).map(([name, value]) => [`web_${name}`, { sensitive: false, value }]);
  const { web, webProblem } = readOutputs(JSON.stringify(Object.fromEntries(outputs)), context);
  return { web, webProblem };
}

it.each([
  [{ port: 0, node: 'n0' }, 'web_port must be a whole number from 1 to 65535'],
  [{ port: 70_000, node: 'n0' }, 'web_port must be a whole number'],
  [{ port: 'ssh', node: 'n0' }, 'web_port must be a whole number'],
  [{ port: '0x50', node: 'n0' }, 'web_port must be a whole number'],
  [{ port: [8080], node: 'n0' }, 'web_port must be a whole number'],
  [{ port: 8080.5, node: 'n0' }, 'web_port must be a whole number'],
  [{ port: 8080, node: '10.0.0.1' }, 'web_node must be the name of a node of the cluster'],
  [{ port: 8080, node: '127.0.0.1' }, 'web_node must be the name of a node'],
  [{ port: 8080, node: 'http://n0/' }, 'web_node must be the name of a node'],
  [{ port: 8080, node: ['n0'] }, 'web_node must be the name of a node'],
  [{ port: 2222, node: 'n0' }, "web_port is the port of the node's SSH server"],
  [{ port: 8080, path: '//other.example/' }, 'web_path must begin with exactly one "/"'],
  [{ port: 8080, path: '/a\r\nset-cookie: b' }, 'web_path must begin with exactly one "/"'],
])('rejects the outputs %o of a run, with the reason', (declared, why) => {
  expect(webOf(declared)).toEqual({ web: null, webProblem: expect.stringContaining(why) });
});

it('accepts a port as a number or a text, on the named node or the first one', () => {
  const web = { port: 8080, node: 'n0', path: '/' };
  expect(webOf({ port: 8080 })).toEqual({ web, webProblem: null });
  expect(webOf({ port: '8080', node: 'n0' })).toEqual({ web, webProblem: null });
  expect(webOf({ port: 8080, path: '/app?a=b' })).toEqual({ web: { ...web, path: '/app?a=b' }, webProblem: null });
});
