import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { connect } from 'node:tls';

/** TLS of the proxy in compose.gateways.yaml, as an operator adds it: a certificate, a line of haproxy.cfg, a port. */

/** A certificate with its key, signed by itself. */
export function newCertificate(): string {
  const words = 'req -x509 -newkey rsa:2048 -nodes -days 3 -subj /CN=localhost -keyout - -out -'.split(' ');
  return execFileSync('openssl', words, { stdio: ['ignore', 'pipe', 'ignore'] }).toString();
}

/** @param folder of the clone */
export function addTls(folder: string, port: number): void {
  const change = (name: string, before: string, after: string): void => {
    const path = join(folder, 'compose', name);
    writeFileSync(path, readFileSync(path, 'utf8').replace(before, `${before}\n${after}`));
  };
  writeFileSync(join(folder, 'compose/secrets/proxy.pem'), newCertificate());
  change('haproxy.cfg', '\tbind :8080', '\tbind :8443 ssl crt /run/secrets/proxy.pem');
  const mounted = '      - ./haproxy.cfg:/usr/local/etc/haproxy/haproxy.cfg:ro';
  change('compose.gateways.yaml', mounted, '      - ./secrets/proxy.pem:/run/secrets/proxy.pem:ro');
  const published = '      - ${PROXY_LISTEN:-127.0.0.1:8080}:8080';
  change('compose.gateways.yaml', published, `      - 127.0.0.1:${port}:8443`);
}

/** Serial number of the certificate that a server shows. */
export async function shownSerial(port: number): Promise<string> {
  const socket = connect({ port, host: '127.0.0.1', rejectUnauthorized: false });
  await once(socket, 'secureConnect');
  const { serialNumber } = socket.getPeerCertificate();
  socket.destroy();
  return serialNumber;
}
