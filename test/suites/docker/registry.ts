import { execFileSync } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';

/** A registry with one image in it, whose layer stops halfway until it is let go. */
export interface TestRegistry {
  /** `<address>:<port>/acme/engine:v1` */
  readonly image: string;
  /** How many times the layer was asked for. */
  layerRequests(): number;
  /** Connections over which the layer is being sent now. */
  sending(): number;
  release(): void;
  close(): void;
}

/** Accounts that may pull. */
export interface RegistryAccess {
  readonly username: string;
  readonly password: string;
  /** The mark that a login with a permanent token has in place of a password. */
  readonly identityToken: string;
}

export interface RegistryOptions {
  /** How somebody proves to be the one who may. */
  readonly scheme?: 'basic' | 'token';
  /** Where it listens. */
  readonly address?: string;
}

const manifestType = 'application/vnd.docker.distribution.manifest.v2+json';

/**
 * Speaks the registry API, version 2, as far as a pull needs it: https://distribution.github.io/distribution/spec/api/
 * @param access null: everybody may pull
 */
export async function startRegistry(
  access: RegistryAccess | null = null,
  { scheme = 'basic', address = '127.0.0.1' }: RegistryOptions = {},
): Promise<TestRegistry> {
  const layer = makeLayer();
  const blob = gzipSync(layer, { level: 0 });
  const config = Buffer.from(
    JSON.stringify({
      architecture: process.arch === 'x64' ? 'amd64' : process.arch,
      os: 'linux',
      config: {},
      rootfs: { type: 'layers', diff_ids: [digestOf(layer)] },
    }),
  );
  const manifest = Buffer.from(
    JSON.stringify({
      schemaVersion: 2,
      mediaType: manifestType,
      config: {
        mediaType: 'application/vnd.docker.container.image.v1+json',
        size: config.length,
        digest: digestOf(config),
      },
      layers: [
        { mediaType: 'application/vnd.docker.image.rootfs.diff.tar.gzip', size: blob.length, digest: digestOf(blob) },
      ],
    }),
  );
  let requests = 0;
  let sending = 0;
  let release = (): void => undefined;
  const released = new Promise<void>((resolve) => (release = resolve));
  const server = createServer((request, answer) => {
    if (access !== null && !isLetIn(request, answer, { access, scheme })) return;
    const path = request.url ?? '';
    const send = (type: string, body: Buffer): void => {
      answer.writeHead(200, {
        'content-type': type,
        'content-length': body.length,
        'docker-content-digest': digestOf(body),
      });
      answer.end(request.method === 'HEAD' ? undefined : body);
    };
    if (path === '/v2/') send('application/json', Buffer.from('{}'));
    else if (/^\/v2\/acme\/engine\/manifests\/(v1|sha256:.*)$/.test(path)) send(manifestType, manifest);
    else if (path.endsWith(digestOf(config))) send('application/octet-stream', config);
    else if (path.endsWith(digestOf(blob)) && request.method === 'GET') {
      requests += 1;
      sending += 1;
      answer.on('close', () => (sending -= 1));
      answer.writeHead(200, { 'content-type': 'application/octet-stream', 'content-length': blob.length });
      answer.write(blob.subarray(0, blob.length / 2));
      void released.then(() => answer.end(blob.subarray(blob.length / 2)));
    } else {
      answer.writeHead(404, { 'content-type': 'application/json' });
      answer.end('{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}');
    }
  });
  await new Promise<void>((resolve) => server.listen(0, address, resolve));
  return {
    image: `${address}:${(server.address() as AddressInfo).port}/acme/engine:v1`,
    layerRequests: () => requests,
    sending: () => sending,
    release,
    close() {
      server.closeAllConnections();
      server.close();
    },
  };
}

interface Door {
  readonly access: RegistryAccess;
  readonly scheme: 'basic' | 'token';
}

const accessToken = 'an-access-token';

/** Answers every caller without access, and repeats the credentials in its answer, as it should not. */
function isLetIn(request: IncomingMessage, answer: ServerResponse, { access, scheme }: Door): boolean {
  const { authorization = '', host = '' } = request.headers;
  if (request.url?.startsWith('/token') === true) {
    void giveToken(request, answer, access);
    return false;
  }
  const pair = Buffer.from(`${access.username}:${access.password}`).toString('base64');
  if (authorization === (scheme === 'basic' ? `Basic ${pair}` : `Bearer ${accessToken}`)) return true;
  const realm = scheme === 'basic' ? 'Basic realm="acme"' : `Bearer realm="http://${host}/token",service="acme"`;
  answer.writeHead(401, { 'content-type': 'application/json', 'www-authenticate': realm });
  const told = Buffer.from(authorization.replace(/^Basic /, ''), 'base64').toString('utf8');
  const message = `not you: ${authorization} ${told}`;
  answer.end(JSON.stringify({ errors: [{ code: 'UNAUTHORIZED', message }] }));
  return false;
}

/** https://distribution.github.io/distribution/spec/auth/oauth/ */
async function giveToken(request: IncomingMessage, answer: ServerResponse, access: RegistryAccess): Promise<void> {
  let text = '';
  for await (const chunk of request.setEncoding('utf8') as AsyncIterable<string>) text += chunk;
  const isKnown = new URLSearchParams(text).get('refresh_token') === access.identityToken;
  answer.writeHead(isKnown ? 200 : 401, { 'content-type': 'application/json' });
  const refusal = { errors: [{ code: 'UNAUTHORIZED', message: `not you: ${text}` }] };
  answer.end(JSON.stringify(isKnown ? { access_token: accessToken, expires_in: 300 } : refusal));
}

/** Eight megabytes: less is sent at once, and there is no progress to be seen. */
function makeLayer(): Buffer {
  const dir = mkdtempSync(join(tmpdir(), 'headgate-layer-'));
  try {
    writeFileSync(join(dir, 'weights'), randomBytes(8_000_000));
    execFileSync('tar', ['--create', '--file', `${dir}/layer.tar`, '--directory', dir, 'weights']);
    return readFileSync(join(dir, 'layer.tar'));
  } finally {
    rmSync(dir, { recursive: true, force: true });
  }
}

function digestOf(bytes: Buffer): string {
  return `sha256:${createHash('sha256').update(bytes).digest('hex')}`;
}
