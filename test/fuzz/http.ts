import { connect, type Socket } from 'node:net';
import { type Body, eventually } from '#test/inference/inference-gateway.ts';
import { engineFile } from '#test/programs/gateway-process.ts';
import { readAnswers, wrongOf } from './answers.ts';
import { type FuzzedGateway, type Organization, startFuzzed } from './gateway.ts';
import { knownConnections } from './http-known.ts';
import { type Connection, connectionCases, type Route } from './http-requests.ts';
import { BrokenPromise, type OpenTarget, type Target } from './target.ts';

type HttpCase = readonly Connection[];

/** A connection on which nothing comes for so long is done with; what it gets then is how it ends. */
const quietMs = 200;
/** Longer than every bound that the gateway is given here. */
const closesMs = 60_000;

interface Conversation {
  readonly text: string;
  /** The client had not ended its side. */
  readonly closedByGateway: boolean;
}

/** Writes the parts one by one, and takes everything until the connection is closed. */
function converse(url: string, parts: readonly string[], after: Connection['after']): Promise<Conversation> {
  const { hostname, port } = new URL(url);
  const socket: Socket = connect({ port: Number(port), host: hostname, allowHalfOpen: true });
  let text = '';
  let ended = false;
  let closedByGateway = false;
  const end = (): void => {
    ended = true;
    if (after === 'reset') socket.resetAndDestroy();
    else socket.end();
  };
  const quiet = setTimeout(end, quietMs);
  socket.setNoDelay(true);
  socket.on('data', (bytes: Buffer) => {
    text += bytes.toString('latin1');
    quiet.refresh();
    if (after === 'reset') end();
  });
  socket.on('end', () => {
    closedByGateway = !ended;
    socket.end();
  });
  // A connection may be closed while there still is something to write.
  socket.on('error', () => undefined);
  void (async () => {
    for (const part of parts) {
      if (!socket.writable) return;
      socket.write(Buffer.from(part, 'latin1'));
      if (parts.length > 1) await new Promise((resolve) => setTimeout(resolve, 2));
    }
    if (after === 'half-close') end();
  })();
  return new Promise((resolve, reject) => {
    const late = setTimeout(() => {
      socket.destroy();
      reject(
        new BrokenPromise(`a connection was still open after ${closesMs / 1000} seconds, with ${JSON.stringify(text)}`),
      );
    }, closesMs);
    socket.on('close', () => {
      clearTimeout(late);
      clearTimeout(quiet);
      resolve({ text, closedByGateway });
    });
  });
}

function checkConversation(parts: readonly string[], { text, closedByGateway }: Conversation): void {
  const answers = readAnswers(text, parts.join('').includes('HEAD '));
  for (const [index, answer] of answers.entries()) {
    const wrong = wrongOf(answer);
    if (wrong !== null) throw new BrokenPromise(wrong);
    const mayBeCut = !closedByGateway && index === answers.length - 1;
    if (!answer.whole && !mayBeCut)
      throw new BrokenPromise(`an answer was cut off: ${JSON.stringify(text.slice(-500))}`);
  }
}

/** The routes of the document, in their order. */
async function readRoutes(url: string): Promise<Route[]> {
  const document: Body = await (await fetch(new URL('/openapi.json', url))).json();
  return Object.entries<object>(document.paths).flatMap(([path, methods]) =>
    Object.keys(methods).map((method) => ({ method: method.toUpperCase(), path })),
  );
}

function fill(text: string, attacker: Organization): string {
  return text
    .replaceAll('sk-INFERENCE', attacker.key)
    .replaceAll('sk-MANAGEMENT', attacker.managementKey)
    .replaceAll('key_SPARE', attacker.spareKeyId)
    .replaceAll('org_OWN', attacker.id);
}

/** More than a pool of database connections, engines' and the customer's; each case leaves one if it leaves any. */
const descriptorsMore = 60;
const memoryMiBMax = 1200;

async function open(databaseUrl: string | null): Promise<OpenTarget<HttpCase>> {
  const gateway = await startFuzzed({
    databaseUrl,
    model: 'chat',
    engines: { chat: engineFile('chat', { flags: ['--output-tokens', '2'] }) },
    env: {
      HEADGATE_BODY_STALL_SECONDS: '1',
      HEADGATE_HEADERS_SECONDS: '1',
      HEADGATE_WRONG_KEYS_PER_MINUTE: '1000000',
      HEADGATE_TRUSTED_PROXIES: '127.0.0.1',
    },
  });
  const routes = await readRoutes(gateway.url);
  const descriptors = gateway.descriptors();
  let attacker = await gateway.openOrganization();

  async function tryOne({ parts, after }: Connection): Promise<void> {
    const filled = parts.map((part) => fill(part, attacker));
    checkConversation(filled, await converse(gateway.url, filled, after));
  }
  return {
    cases: connectionCases(routes),
    known: knownConnections,
    async try(given) {
      const tried = await Promise.allSettled([...given.map(tryOne), gateway.serveCustomer()]);
      gateway.isAlive();
      for (const one of tried) if (one.status === 'rejected') throw one.reason;
    },
    async settle() {
      await isQuiet(gateway, attacker, descriptors + descriptorsMore);
      const memory = gateway.memoryMiB();
      if (memory > memoryMiBMax) throw new BrokenPromise(`the gateway has ${memory} MiB`);
      attacker = await gateway.openOrganization();
    },
    show: (given) =>
      given.map(({ parts, after }) => `${after}: ${parts.map((part) => JSON.stringify(part)).join(', ')}`).join('\n'),
    close: () => gateway.close(),
  };
}

/** Waits until nothing runs, nothing is held and no connection is left. @throws BrokenPromise where that never comes */
async function isQuiet(gateway: FuzzedGateway, attacker: Organization, descriptorsMax: number): Promise<void> {
  let left = '';
  const look = async (): Promise<boolean> => {
    const metrics = await gateway.metrics();
    const running = [
      'headgate_requests_in_flight',
      'headgate_waiting_requests',
      'headgate_books_pending_records',
    ].filter((name) => metrics.get(name) !== 0);
    const { held } = await attacker.api('/v1/wallet');
    const descriptors = gateway.descriptors();
    left = `${running.join(', ')} are not 0, ${held} USD are held, ${descriptors} descriptors are open`;
    return running.length === 0 && Number(held) === 0 && descriptors <= descriptorsMax;
  };
  try {
    await eventually(look);
  } catch (error) {
    throw error instanceof Error && error.message === 'gave up waiting' ? new BrokenPromise(left) : error;
  }
}

/** Sends any bytes over a connection: answers are HTTP and leak nothing, and everybody else is served. */
export const httpTarget: Target<HttpCase> = { name: 'http', roundCases: 60, open };
