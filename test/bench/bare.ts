import { createServer, type ServerResponse } from 'node:http';
import { getRequestListener, type HttpBindings } from '@hono/node-server';
import { RESPONSE_ALREADY_SENT } from '@hono/node-server/utils/response';
import { Hono } from 'hono';
import { Pool, type Dispatcher } from 'undici';

/**
 * The relay that the gateway is compared with: Hono and undici's Pool.dispatch, the leanest that they make. It
 * parses the body and passes on what comes; no keys, no ledger, no counting.
 */
const pool = new Pool(process.argv[2] ?? '', { connections: null, headersTimeout: 0, bodyTimeout: 0, pipelining: 1 });

function relay(outgoing: ServerResponse, done: () => void): Dispatcher.DispatchHandler {
  let controller: Dispatcher.DispatchController | null = null;
  outgoing.on('close', () => {
    if (!outgoing.writableFinished) controller?.abort(new Error('the client left'));
    done();
  });
  outgoing.on('drain', () => controller?.resume());
  return {
    onRequestStart(started) {
      controller = started;
    },
    onResponseStart(_, status, headers) {
      const length = headers['content-length'];
      const type = { 'content-type': String(headers['content-type']) };
      outgoing.writeHead(status, length === undefined ? type : { ...type, 'content-length': String(length) });
    },
    onResponseData(started, chunk) {
      if (!outgoing.write(chunk)) started.pause();
    },
    onResponseEnd() {
      outgoing.end();
    },
    onResponseError() {
      outgoing.destroy();
    },
  };
}

const app = new Hono<{ Bindings: HttpBindings }>();
app.post('/v1/chat/completions', async (context) => {
  const body = await context.req.text();
  const request = JSON.parse(body) as { model?: unknown };
  if (typeof request.model !== 'string') return context.json({ error: 'no model' }, 400);
  const { outgoing } = context.env;
  await new Promise<void>((resolve) => {
    const headers = { 'content-type': 'application/json' };
    pool.dispatch({ path: '/v1/chat/completions', method: 'POST', headers, body }, relay(outgoing, resolve));
  });
  return RESPONSE_ALREADY_SENT;
});

const listener = getRequestListener(app.fetch, { overrideGlobalObjects: false });
const server = createServer({ keepAliveTimeout: 75_000, noDelay: true }, (incoming, outgoing) => {
  void listener(incoming, outgoing);
});
server.listen({ port: 0, host: '127.0.0.1', backlog: 4096 }, () => {
  const address = server.address();
  process.send?.({ port: typeof address === 'object' && address !== null ? address.port : 0 });
});
process.on('disconnect', () => process.exit(0));
