import { expect, it } from 'vitest';
import { explainConnection } from '#core/runs/execute/connection-failure.ts';

/** Lines as Terraform and OpenTofu write them, of causes that no test brings about. */

const head = 'remote-exec provisioner error (main.tf:8): ';
const nodes = [
  { address: '10.0.0.7', sshPort: 22 },
  { address: '2001:db8::7', sshPort: 22 },
  { address: 'gpu-1.internal', sshPort: 22 },
];
const explain = (last: string, unreached: Parameters<typeof explainConnection>[1]['unreached'] = []): string =>
  explainConnection(`${head}timeout - last error: ${last}`, { unreached, nodes });
const closed = (user: string): string => `SSH authentication failed (${user}): ssh: handshake failed: EOF`;

it.each([
  [
    'dial tcp 10.0.0.7:22: i/o timeout',
    /^10\.0\.0\.7, port 22, did not respond \(ETIMEDOUT\): check that the machine runs/,
  ],
  ['dial tcp [2001:db8::7]:22: connect: connection refused', /^2001:db8::7, port 22, refused the connection: start/],
  [
    'dial tcp: lookup gpu-1.internal on 10.0.0.2:53: no such host',
    /^the host name gpu-1\.internal is unknown: correct/,
  ],
  [
    'dial tcp 10.0.0.8:22: connect: connection refused',
    /^10\.0\.0\.8, port 22, does not respond, and no node of the cluster/,
  ],
  [closed('root@10.0.0.7:22'), /^10\.0\.0\.7, port 22, closed the connection before the login: check/],
  ['<nil>', /^a node accepted the connection but did not respond/],
])('explains the connection error %s', (last, cause) => {
  const text = explain(last);
  expect(text.startsWith(head)).toBe(true);
  expect(text.slice(head.length)).toMatch(cause);
});

it('explains a connection error only by recorded failures of its own host and port', () => {
  const noted = [{ host: '10.0.0.9', port: 22, trouble: 'ECONNREFUSED' }];
  expect(explain(closed('root@10.0.0.7:22'), noted)).toContain('closed the connection before the login');
  const named = [{ host: 'gpu-1.internal', port: 22, trouble: 'EHOSTUNREACH' }];
  expect(explain(closed('root@gpu-1.internal:22'), named)).toContain('gpu-1.internal, port 22, did not respond (EHOST');
});

it('leaves every other error unchanged', () => {
  for (const error of ['Reference to undeclared resource (main.tf:3): No resource', `${head}error executing "x"`]) {
    expect(explainConnection(error, { unreached: [], nodes })).toBe(error);
  }
  expect(explain('ssh: something new')).toBe(`${head}timeout - last error: ssh: something new`);
});
