import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { connect } from 'node:tls';

/** TLS at the proxy of compose.gateways.yaml, by the files of its chapter: a certificate, a frontend, a compose file. */

/** A certificate with its key, signed by itself. */
export function newCertificate(): string {
  const words = 'req -x509 -newkey rsa:2048 -nodes -days 3 -subj /CN=localhost -keyout - -out -'.split(' ');
  return execFileSync('openssl', words, { stdio: ['ignore', 'pipe', 'ignore'] }).toString();
}

/**
 * Writes the files.
 * @param folder of the clone
 * @returns the lines of a chapter with the compose file of TLS on top of compose.gateways.yaml
 */
export function addTls(folder: string, port: number): (lines: string) => string {
  const write = (name: string, text: string): void => writeFileSync(join(folder, 'compose', name), text);
  const chapter = readFileSync(join(folder, 'compose/gateways.md'), 'utf8');
  const [, section = ''] = chapter.split('## TLS at HAProxy\n');
  const [frontend = '', composeFile = ''] = [...section.matchAll(/```\w*\n([\s\S]*?)```/g)].map(([, text]) => text);
  write('secrets/proxy.pem', newCertificate());
  write('tls.cfg', frontend);
  write('tls.yaml', composeFile.replace('443:8443', `127.0.0.1:${port}:8443`));
  const files = '-f compose/compose.gateways.yaml';
  return (lines) => lines.replaceAll(files, `${files} -f compose/tls.yaml`);
}

/** Serial number of the certificate that a server shows. */
export async function shownSerial(port: number): Promise<string> {
  const socket = connect({ port, host: '127.0.0.1', rejectUnauthorized: false });
  await once(socket, 'secureConnect');
  const { serialNumber } = socket.getPeerCertificate();
  socket.destroy();
  return serialNumber;
}
