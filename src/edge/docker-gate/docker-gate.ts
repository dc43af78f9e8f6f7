import { once } from 'node:events';
import {
  createServer,
  request as httpRequest,
  type IncomingMessage,
  type Server,
  type ServerResponse,
} from 'node:http';
import type { AddressInfo } from 'node:net';
import { packArchive, readArchive } from '#base/docker/docker.ts';
import type { Log } from '#base/log.ts';
import { decide, type DockerCall, type Policy } from './calls.ts';
import { unreachableSentence } from './socket.ts';
import { isRunPath } from './run-bodies.ts';
import { gatewayAnswer, resolveTargets } from './targets.ts';

export { dropRoot } from './root.ts';
export { socketGroup, describeClosedSocket } from './socket.ts';

/**
 * A filter in front of the Docker socket. Access to the socket means root on the machine, but a gateway needs only a
 * few calls, on its own containers and networks, and with a swarm on its own services and secrets. The filter answers
 * 403 to unlisted calls, to bodies with unknown fields, and to objects without a label of Headgate. It rebuilds
 * accepted calls from parsed values, so that the engine sees only checked values.
 */
export interface DockerGateOptions {
  readonly host: string;
  readonly port: number;
  readonly socketPath: string;
  readonly policy: Policy;
  readonly log: Log;
}

export interface DockerGate {
  readonly port: number;
  close(): Promise<void>;
}

const bodyBytesMax = 1_048_576;
/** Bytes of an archive. A package has at most 50 MiB and 2000 files; folders, state and settings come in addition. */
const archiveBytesMax = 134_217_728;
const archiveEntriesMax = 50_000;

/** Starts the filter. Listens when the promise resolves. */
export async function startDockerGate(options: DockerGateOptions): Promise<DockerGate> {
  const server = createServer((incoming, answer) => {
    handle(options, incoming, answer).catch((error: unknown) => {
      options.log.warn({ err: error }, 'docker-gate could not pass a call to the Docker engine, and answered with 502');
      refuse(answer, 502, unreachableSentence(options.socketPath, error));
    });
  });
  server.listen(options.port, options.host);
  await once(server, 'listening');
  return { port: (server.address() as AddressInfo).port, close: () => close(server) };
}

async function close(server: Server): Promise<void> {
  const closed = once(server, 'close');
  server.close();
  server.closeAllConnections();
  await closed;
}

async function handle(options: DockerGateOptions, incoming: IncomingMessage, answer: ServerResponse): Promise<void> {
  const { method = '', url = '' } = incoming;
  // Archives are read only after the call was accepted.
  const body = method === 'PUT' ? '' : await readBody(incoming);
  if (body === null) return refuse(answer, 413, `The body is larger than ${bodyBytesMax} bytes.`);
  const about = `${method} ${url.split('?')[0]}`;
  const decision = decide(options.policy, { method, url, body });
  if ('refusal' in decision) return refuseLoudly(options, answer, about, decision.refusal);
  const resolved = await resolveTargets(options.socketPath, decision);
  if ('status' in resolved) {
    if (resolved.status === 403) return refuseLoudly(options, answer, about, resolved.message);
    return refuse(answer, resolved.status, resolved.message);
  }
  if (resolved.call.takesArchive) {
    const archive = await readRunArchive(incoming);
    if (typeof archive === 'string') return refuseLoudly(options, answer, about, archive);
    return forward(options, resolved.call, { incoming, answer, archive });
  }
  const [found] = resolved.found;
  const shown = method === 'GET' && found ? gatewayAnswer(found) : null;
  if (shown === null) return forward(options, resolved.call, { incoming, answer, archive: null });
  answer.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(shown));
}

function refuseLoudly({ log }: DockerGateOptions, answer: ServerResponse, call: string, reason: string): void {
  log.warn({ call: call.slice(0, 200), reason }, 'docker-gate rejected a call, which did not reach the Docker engine');
  refuse(answer, 403, `headgate docker-gate: ${reason}`);
}

/** Answers with an error in the format of Docker's API. */
function refuse(answer: ServerResponse, status: number, message: string): void {
  if (answer.headersSent) {
    answer.destroy();
    return;
  }
  answer.writeHead(status, { 'content-type': 'application/json', connection: 'close' });
  answer.end(JSON.stringify({ message }));
}

async function readBody(incoming: IncomingMessage): Promise<string | null> {
  const parts: Buffer[] = [];
  let bytes = 0;
  for await (const part of incoming as AsyncIterable<Buffer>) {
    bytes += part.length;
    if (bytes > bodyBytesMax) return null;
    parts.push(part);
  }
  return Buffer.concat(parts).toString('utf8');
}

/**
 * Rebuilds an archive from its plain files, with the runs' user as owner. @returns a sentence if the archive is invalid
 */
async function readRunArchive(incoming: IncomingMessage): Promise<Buffer | string> {
  try {
    const files = await readArchive(incoming, { bytesMax: archiveBytesMax, entriesMax: archiveEntriesMax });
    const other = files.find(({ path }) => !isRunPath(path));
    if (other !== undefined) return `The archive has a file outside the run’s folder: ${other.path.slice(0, 100)}.`;
    return await packArchive(files, { uid: 65_532, gid: 65_532 });
  } catch (error) {
    return `The archive cannot be read: ${error instanceof Error ? error.message.slice(0, 200) : ''}.`;
  }
}

interface Exchange {
  readonly incoming: IncomingMessage;
  readonly answer: ServerResponse;
  readonly archive: Buffer | null;
}

function forward(
  { socketPath, log }: DockerGateOptions,
  call: DockerCall,
  { incoming, answer, archive }: Exchange,
): void {
  const headers: Record<string, string> = { host: 'docker' };
  const auth = incoming.headers['x-registry-auth'];
  if (call.passesRegistryAuth && typeof auth === 'string') headers['x-registry-auth'] = auth;
  const body = archive ?? call.body;
  if (body !== null) {
    headers['content-type'] = archive === null ? 'application/json' : 'application/x-tar';
    headers['content-length'] = String(Buffer.byteLength(body));
  }
  const upstream = httpRequest({ socketPath, method: call.method, path: call.path, headers, agent: false });
  upstream.on('response', (response) => {
    const type = response.headers['content-type'];
    answer.writeHead(response.statusCode ?? 502, {
      ...(type === undefined ? {} : { 'content-type': type }),
      ...(response.headers['api-version'] === undefined ? {} : { 'api-version': response.headers['api-version'] }),
    });
    // Events and logs are followed: send the headers before the first data arrives.
    answer.flushHeaders();
    response.pipe(answer);
    response.on('error', () => answer.destroy());
  });
  upstream.on('error', (error) => {
    if (!answer.destroyed)
      log.warn({ err: error }, 'docker-gate could not pass a call to the Docker engine, and answered with 502');
    refuse(answer, 502, unreachableSentence(socketPath, error));
  });
  answer.on('close', () => upstream.destroy());
  upstream.end(body ?? undefined);
}
