import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { createServer } from 'node:https';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { getCACertificates, setDefaultCACertificates } from 'node:tls';
import type { Outbound } from '#core/stacks/stacks.ts';

/** A server of packages that a gateway reaches as it reaches any host of the internet. */
export interface PackageServer {
  /** Names and addresses are those of `hosts`; every connection to a public one ends at this server. */
  readonly outbound: Outbound;
  /** `host:port` of every connection that was made, and the paths that were asked for. */
  readonly dialed: string[];
  readonly asked: { readonly path: string; readonly headers: IncomingMessage['headers'] }[];
  close(): Promise<void>;
}

export type PackageRoutes = Readonly<Record<string, (response: ServerResponse, request: IncomingMessage) => void>>;

/** A certificate for some names, which this process believes from then on. */
export function makeCertificate(names: readonly string[]): { key: string; cert: string } {
  const folder = mkdtempSync(join(tmpdir(), 'hg-tls-'));
  const [key, cert] = [join(folder, 'key.pem'), join(folder, 'cert.pem')];
  const subjects = names.map((name) => `DNS:${name}`).join(',');
  execFileSync(
    'openssl',
    ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '2']
      .concat(['-subj', '/CN=packages', '-addext', `subjectAltName=${subjects}`])
      .concat(['-keyout', key, '-out', cert]),
    { stdio: 'ignore' },
  );
  const made = { key: readFileSync(key, 'utf8'), cert: readFileSync(cert, 'utf8') };
  rmSync(folder, { recursive: true });
  setDefaultCACertificates([...getCACertificates('default'), made.cert]);
  return made;
}

export async function startPackageServer(
  hosts: Readonly<Record<string, readonly string[]>>,
  routes: PackageRoutes,
): Promise<PackageServer> {
  const dialed: string[] = [];
  const asked: { path: string; headers: IncomingMessage['headers'] }[] = [];
  const server = createServer(makeCertificate(Object.keys(hosts)), (request, response) => {
    const path = request.url ?? '';
    asked.push({ path, headers: request.headers });
    const route = routes[path];
    if (route === undefined) response.writeHead(404).end();
    else route(response, request);
  });
  await new Promise<void>((resolve) => void server.listen(0, '127.0.0.1', resolve));
  const address = server.address();
  const port = typeof address === 'object' && address !== null ? address.port : 0;
  return {
    dialed,
    asked,
    outbound: {
      resolve: (name) => {
        const addresses = hosts[name];
        return addresses === undefined ? Promise.reject(new Error('ENOTFOUND')) : Promise.resolve(addresses);
      },
      dial(host, wanted) {
        dialed.push(`${host}:${wanted}`);
        return connect(port, '127.0.0.1');
      },
    },
    async close() {
      server.closeAllConnections();
      await new Promise((resolve) => void server.close(resolve));
    },
  };
}
