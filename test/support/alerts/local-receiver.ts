import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Got } from './receiver.ts';

/** A receiver on this machine, by plain HTTP: a gateway sends there where HEADGATE_WEBHOOK_HOSTS names `host`. */
export interface LocalReceiver {
  readonly host: string;
  readonly url: string;
  readonly got: Got[];
  /** The status of the next answers; null never answers. */
  status: number | null;
  close(): Promise<void>;
}

export async function startLocalReceiver(): Promise<LocalReceiver> {
  const got: Got[] = [];
  const server = createServer((request, response) => {
    const parts: Buffer[] = [];
    request.on('data', (part: Buffer) => parts.push(part));
    request.on('end', () => {
      const headers = Object.fromEntries(Object.entries(request.headers).map(([name, value]) => [name, String(value)]));
      const { host = '' } = headers;
      got.push({ host, path: request.url ?? '', headers, body: Buffer.concat(parts).toString('utf8') });
      if (receiver.status !== null) response.writeHead(receiver.status).end('An answer that nobody reads.');
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const host = `127.0.0.1:${(server.address() as AddressInfo).port}`;
  const receiver: LocalReceiver = {
    host,
    url: `http://${host}/in`,
    got,
    status: 204,
    async close() {
      server.closeAllConnections();
      await new Promise((resolve) => void server.close(resolve));
    },
  };
  return receiver;
}
