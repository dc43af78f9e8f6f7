import { once } from 'node:events';
import {
  createServer,
  request as httpRequest,
  type IncomingMessage,
  type Server,
  type ServerResponse,
} from 'node:http';
import type { AddressInfo } from 'node:net';
import { isDeepStrictEqual } from 'node:util';
import type { Log } from '#base/log.ts';
import { decide, type DockerCall, type Policy } from './calls.ts';
import type { Target } from './rule.ts';

/**
 * A door in front of the Docker socket. Whoever has that socket is root on its machine; a gateway needs a few calls of
 * it, on containers and networks of its own, and where a swarm is allowed on services and secrets of its own. Calls that
 * are not listed, bodies with a field that is not known, and things that bear no label of Headgate's are answered 403,
 * and what is passed on is made anew from what was read, so that the engine behind sees nothing that was not checked.
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
const inspectTimeoutMs = 10_000;

/** Listens when it returns. */
export async function startDockerGate(options: DockerGateOptions): Promise<DockerGate> {
  const server = createServer((incoming, answer) => {
    handle(options, incoming, answer).catch((error: unknown) => {
      options.log.warn({ err: error }, 'a call to the Docker engine failed');
      refuse(answer, 502, 'The Docker engine cannot be reached.');
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
  const body = await readBody(incoming);
  if (body === null) return refuse(answer, 413, 'The body is too large.');
  const { method = '', url = '' } = incoming;
  const decision = decide(options.policy, { method, url, body });
  if ('refusal' in decision) return refuseLoudly(options, answer, `${method} ${url.split('?')[0]}`, decision.refusal);
  for (const target of decision.targets) {
    const problem = problemOf(target, await inspect(options.socketPath, target.path));
    if (problem === 'absent') return refuse(answer, 404, 'headgate docker-gate: There is nothing of this name.');
    if (problem !== null) return refuseLoudly(options, answer, target.path, problem);
  }
  forward(options, decision, { incoming, answer });
}

/** What speaks against a call on something, null when nothing does. */
function problemOf({ labels, spec }: Target, found: Inspected | null): string | null {
  // One that is not there is told so by the engine itself, which may still know what it left behind. Where its
  // specification counts it must be there: it could come in a moment, with another one.
  if (found === null) return spec === undefined ? null : 'absent';
  if (!labels.some((label) => label in found.labels)) return 'This is not one of Headgate.';
  if (spec === undefined || isSameBesideMode(spec, found.spec)) return null;
  return 'Nothing but the number of tasks may change.';
}

function isSameBesideMode(spec: object, other: object): boolean {
  return isDeepStrictEqual({ ...spec, Mode: null }, { ...other, Mode: null });
}

function refuseLoudly({ log }: DockerGateOptions, answer: ServerResponse, call: string, reason: string): void {
  log.warn({ call: call.slice(0, 200), reason }, 'a call to the Docker engine was refused');
  refuse(answer, 403, `headgate docker-gate: ${reason}`);
}

/** In the envelope of Docker's own API. */
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

interface Inspected {
  readonly labels: Readonly<Record<string, string>>;
  /** Of a service or secret. */
  readonly spec: object;
}

type LabelsAnswer = { Labels?: Record<string, string> | null };

/** What an inspection tells of a container, network, service or secret; null when there is none of that name. */
async function inspect(socketPath: string, path: string): Promise<Inspected | null> {
  const asked = httpRequest({ socketPath, path, agent: false, timeout: inspectTimeoutMs });
  asked.on('timeout', () => asked.destroy(new Error('The Docker engine did not answer in time.')));
  asked.end();
  const [answer] = (await once(asked, 'response')) as [IncomingMessage];
  const parts: Buffer[] = [];
  for await (const part of answer as AsyncIterable<Buffer>) parts.push(part);
  if (answer.statusCode === 404) return null;
  if (answer.statusCode !== 200) throw new Error(`The Docker engine answered ${answer.statusCode} to an inspection.`);
  const found = JSON.parse(Buffer.concat(parts).toString('utf8')) as LabelsAnswer & {
    Config?: LabelsAnswer;
    Spec?: LabelsAnswer;
  };
  const labels = found.Config?.Labels ?? found.Labels ?? found.Spec?.Labels ?? {};
  return { labels, spec: found.Spec ?? {} };
}

interface Exchange {
  readonly incoming: IncomingMessage;
  readonly answer: ServerResponse;
}

function forward({ socketPath, log }: DockerGateOptions, call: DockerCall, { incoming, answer }: Exchange): void {
  const headers: Record<string, string> = { host: 'docker' };
  const auth = incoming.headers['x-registry-auth'];
  if (call.passesRegistryAuth && typeof auth === 'string') headers['x-registry-auth'] = auth;
  if (call.body !== null) {
    headers['content-type'] = 'application/json';
    headers['content-length'] = String(Buffer.byteLength(call.body));
  }
  const upstream = httpRequest({ socketPath, method: call.method, path: call.path, headers, agent: false });
  upstream.on('response', (response) => {
    const type = response.headers['content-type'];
    answer.writeHead(response.statusCode ?? 502, {
      ...(type === undefined ? {} : { 'content-type': type }),
      ...(response.headers['api-version'] === undefined ? {} : { 'api-version': response.headers['api-version'] }),
    });
    // Events and logs are followed: what is known must not wait for what will come.
    answer.flushHeaders();
    response.pipe(answer);
    response.on('error', () => answer.destroy());
  });
  upstream.on('error', (error) => {
    if (!answer.destroyed) log.warn({ err: error }, 'a call to the Docker engine failed');
    refuse(answer, 502, 'The Docker engine cannot be reached.');
  });
  answer.on('close', () => upstream.destroy());
  upstream.end(call.body ?? undefined);
}
