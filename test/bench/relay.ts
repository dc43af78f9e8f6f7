import { createServer, type ServerResponse } from 'node:http';
import { tcpEndpoint } from '#base/net/net.ts';
import { createEngineClient } from '#core/engine-client/engine-client.ts';

/**
 * The floor under the gateway: `node:http` and the gateway's own client of engines, with nothing between them. It
 * reads the body, sends it on, and passes the answer through.
 */
const { port: enginePort } = new URL(process.argv[2] ?? '');
const endpoint = tcpEndpoint('127.0.0.1', Number(enginePort));
const client = createEngineClient({
  firstByteTimeoutMs: 60_000,
  idleTimeoutMs: 60_000,
  connectTimeoutMs: 5000,
  idleSocketMs: 4000,
  maxHeaderBytes: 16_384,
});

function relay(body: string, outgoing: ServerResponse): void {
  const headerLines = 'content-type: application/json\r\n';
  const request = { method: 'POST', path: '/v1/chat/completions', headerLines, body } as const;
  const call = client.call(endpoint, request, {
    onHead(status, headers) {
      const length = headers.get('content-length');
      const type = { 'content-type': headers.get('content-type') ?? 'application/json' };
      outgoing.writeHead(status, length === undefined ? type : { ...type, 'content-length': length });
    },
    onData(text) {
      if (!outgoing.write(text, 'latin1')) call.pause();
    },
    onEnd: () => void outgoing.end(),
    onFault: () => void outgoing.destroy(),
  });
  outgoing.on('drain', () => call.resume());
  outgoing.on('close', () => {
    if (!outgoing.writableFinished) call.destroy();
  });
}

const server = createServer({ keepAliveTimeout: 75_000, noDelay: true }, (incoming, outgoing) => {
  let body = '';
  incoming.setEncoding('latin1');
  incoming.on('data', (text: string) => {
    body += text;
  });
  incoming.on('end', () => relay(body, outgoing));
});
server.listen({ port: 0, host: '127.0.0.1', backlog: 4096 }, () => {
  const address = server.address();
  process.send?.({ port: typeof address === 'object' && address !== null ? address.port : 0 });
});
process.on('disconnect', () => process.exit(0));
