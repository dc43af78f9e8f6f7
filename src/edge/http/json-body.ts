import type { MiddlewareHandler } from 'hono';
import { AppError } from '#base/errors.ts';
import { scanDocument } from '#base/json-scan.ts';
import type { HttpEnv } from './env.ts';
import { ValidationError } from './failure.ts';

const bodyBytesMax = 1_048_576;
/** What is still read of a body that is too large, so that the client gets to read the answer. */
const drainBytesMax = 67_108_864;

const wrongBody = (message: string): ValidationError => new ValidationError([{ field: 'body', message }]);

/**
 * Reads the body of the JSON APIs before its schema sees it: at most 1 MiB, application/json, UTF-8, one JSON object
 * without a member twice (readers disagree on which of the two counts).
 * @param stallTimeoutMs how long the next part of a body may take
 */
export function createJsonBody(stallTimeoutMs: number): MiddlewareHandler<HttpEnv> {
  return async (context, next) => {
    const mediaType = (context.req.header('content-type') ?? '').split(';')[0]?.trim().toLowerCase();
    const bytes = await readBytes(context.req.raw.body, stallTimeoutMs);
    if (bytes.length === 0) throw wrongBody('is missing: send a JSON object');
    if (mediaType !== 'application/json') throw new AppError('unsupported_media_type');
    const text = decode(bytes);
    checkObject(text);
    context.req.raw = new Request(context.req.url, {
      method: context.req.method,
      headers: { 'content-type': 'application/json' },
      body: text,
    });
    await next();
  };
}

async function readBytes(stream: ReadableStream<Uint8Array> | null, stallTimeoutMs: number): Promise<Buffer> {
  if (stream === null) return Buffer.alloc(0);
  const reader = stream.getReader();
  const chunks: Uint8Array[] = [];
  let length = 0;
  while (length <= drainBytesMax) {
    const part = await withinTime(reader.read(), stallTimeoutMs);
    if (part.done) break;
    length += part.value.length;
    if (length <= bodyBytesMax) chunks.push(part.value);
  }
  if (length > bodyBytesMax) {
    const message = `The request body is too large: at most ${bodyBytesMax} bytes are read here.`;
    throw new AppError('request_too_large', { message });
  }
  return Buffer.concat(chunks);
}

/** @throws AppError request_timeout; the connection closes with it, since the rest of the body may still come */
async function withinTime<T>(reading: Promise<T>, timeoutMs: number): Promise<T> {
  let timer: NodeJS.Timeout | null = null;
  const stalled = new Promise<never>((_, reject) => {
    const message = `The request body stalled for ${timeoutMs / 1000} seconds.`;
    const refuse = (): void => reject(new AppError('request_timeout', { message, headers: { connection: 'close' } }));
    timer = setTimeout(refuse, timeoutMs);
  });
  try {
    return await Promise.race([reading, stalled]);
  } finally {
    if (timer !== null) clearTimeout(timer);
  }
}

function decode(bytes: Buffer): string {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch (error) {
    if (error instanceof TypeError) throw wrongBody('is not UTF-8');
    throw error;
  }
}

function checkObject(text: string): void {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    if (error instanceof SyntaxError) throw wrongBody('is not valid JSON');
    throw error;
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) throw wrongBody('must be a JSON object');
  const scan = scanDocument(Buffer.from(text).toString('latin1'));
  const seen = new Set<string>();
  for (const { key } of scan.ok ? scan.members : []) {
    if (seen.has(key)) throw new ValidationError([{ field: key, message: 'is there twice' }]);
    seen.add(key);
  }
}
