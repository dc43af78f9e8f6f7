import { createSecureServer, type IncomingHttpHeaders, type ServerHttp2Stream } from 'node:http2';
import { existsSync, mkdtempSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { tmpdir } from 'node:os';

/**
 * A provider of Terraform in its own protocol (tfplugin5 over gRPC, started as hashicorp/go-plugin does), with one
 * resource `tiny_note` that has a `text` and is nowhere but in the state. What is planned is what was proposed, so that
 * values are passed on as they came. Notes drift by a file `outside.json` beside this program: it has the text that
 * somebody gave a note instead of its own, by the note's text, or null for a note that was deleted. While there is a
 * file `hold`, nothing is read.
 */

/** Field of a message whose value is bytes, a text or another message. */
function field(number: number, value: Uint8Array | string): Buffer {
  const bytes = Buffer.from(value);
  return Buffer.concat([varint((number << 3) | 2), varint(bytes.length), bytes]);
}

function varint(value: number): Buffer {
  const bytes: number[] = [];
  let rest = value;
  for (; rest > 0x7f; rest >>>= 7) bytes.push((rest & 0x7f) | 0x80);
  return Buffer.from([...bytes, rest]);
}

/** The last value of a field that is of bytes; empty where it is not there. */
function valueOf(message: Buffer, wanted: number): Buffer {
  let found: Buffer = Buffer.alloc(0);
  let at = 0;
  const number = (): number => {
    let value = 0;
    for (let shift = 0; ; shift += 7) {
      const byte = message[at] ?? 0;
      at += 1;
      value |= (byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
  };
  while (at < message.length) {
    const tag = number();
    if ((tag & 7) === 0) number();
    else {
      const length = number();
      if (tag >>> 3 === wanted) found = message.subarray(at, at + length);
      at += length;
    }
  }
  return found;
}

const isRequired = Buffer.from([(4 << 3) | 0, 1]);
const attribute = Buffer.concat([field(1, 'text'), field(2, '"string"'), isRequired]);
const schema = (block: Uint8Array): Buffer => field(2, block);
const resource = Buffer.concat([field(1, 'tiny_note'), field(2, schema(field(2, attribute)))]);

const nothing = Buffer.alloc(0);

/** Head of the object `{text}` in MessagePack, before its text. */
const noteHead = Buffer.from([0x81, 0xa4, ...Buffer.from('text')]);

/** The state of a note after somebody has changed or deleted it. @param state in MessagePack */
function refreshed(state: Buffer): Buffer {
  const packed = valueOf(state, 1);
  while (existsSync(join(import.meta.dirname, 'hold'))) {
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 50);
  }
  const file = join(import.meta.dirname, 'outside.json');
  if (!packed.subarray(0, noteHead.length).equals(noteHead) || !existsSync(file)) return state;
  const outside = JSON.parse(readFileSync(file, 'utf8')) as Readonly<Record<string, string | null>>;
  // A text begins with its length, in one byte up to 31 bytes, else in a byte more.
  const text = packed.subarray(noteHead.length + (packed[noteHead.length] === 0xd9 ? 2 : 1)).toString('utf8');
  const now = outside[text];
  if (now === undefined) return state;
  if (now === null) return field(1, Buffer.from([0xc0]));
  return field(1, Buffer.concat([noteHead, Buffer.from([0xd9, Buffer.byteLength(now)]), Buffer.from(now)]));
}
const methods: Readonly<Record<string, (request: Buffer) => Buffer>> = {
  GetSchema: () => Buffer.concat([field(1, schema(nothing)), field(2, resource)]),
  PrepareProviderConfig: (request) => field(1, valueOf(request, 1)),
  ValidateResourceTypeConfig: () => nothing,
  Configure: () => nothing,
  // A state in JSON is a value in JSON.
  UpgradeResourceState: (request) => field(1, field(2, valueOf(valueOf(request, 3), 1))),
  ReadResource: (request) => field(1, refreshed(valueOf(request, 2))),
  PlanResourceChange: (request) => field(1, valueOf(request, 3)),
  ApplyResourceChange: (request) => field(1, valueOf(request, 3)),
  Stop: () => nothing,
};

function answer(stream: ServerHttp2Stream, path: string, request: Buffer): void {
  if (path === '/plugin.GRPCController/Shutdown') setImmediate(() => process.exit(0));
  const method = methods[path.split('/')[2] ?? ''];
  const isKnown = path.startsWith('/tfplugin5.Provider/') && method !== undefined;
  const trailers = { 'grpc-status': isKnown ? '0' : '12' };
  const headers = { ':status': 200, 'content-type': 'application/grpc' };
  if (!isKnown) {
    stream.respond({ ...headers, ...trailers }, { endStream: true });
    return;
  }
  const message = method(request.subarray(5));
  const frame = Buffer.alloc(5);
  frame.writeUInt32BE(message.length, 1);
  stream.respond(headers, { waitForTrailers: true });
  stream.on('wantTrailers', () => stream.sendTrailers(trailers));
  stream.end(Buffer.concat([frame, message]));
}

/** @param tls a key, and a certificate of `localhost`, in PEM */
export function serve(tls: { readonly key: string; readonly cert: string }): void {
  if (process.env['TF_PLUGIN_MAGIC_COOKIE'] === undefined) {
    process.stderr.write('This is a provider of Terraform, which starts it.\n');
    process.exit(1);
  }
  const server = createSecureServer({ ...tls, requestCert: true, rejectUnauthorized: false });
  server.on('stream', (stream: ServerHttp2Stream, headers: IncomingHttpHeaders) => {
    const parts: Buffer[] = [];
    const path = String(headers[':path']);
    stream.on('error', () => undefined);
    // An endless request, such as the broker's stream, is rejected before it ends.
    if (path.startsWith('/plugin.GRPCBroker') || path.startsWith('/plugin.GRPCStdio')) answer(stream, path, nothing);
    else {
      stream.on('data', (part: Buffer) => parts.push(part));
      stream.on('end', () => answer(stream, path, Buffer.concat(parts)));
    }
  });
  // Every phase of a run has the same numbers for its processes.
  const socket = join(mkdtempSync(join(tmpdir(), 'tiny-')), 'socket');
  const der = tls.cert.split('\n').filter((line) => line !== '' && !line.startsWith('-----'));
  server.listen(socket, () => {
    process.stdout.write(`1|5|unix|${socket}|grpc|${der.join('').replaceAll('=', '')}\n`);
  });
}
