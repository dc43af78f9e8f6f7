import type { IncomingMessage } from 'node:http';
import type { MiddlewareHandler } from 'hono';
import { AppError } from '#base/errors.ts';
import type { BodyHold, BodyShares } from './body-shares.ts';
import { type BodyLimits, ClientGoneError, collectBody } from './collect-body.ts';
import { type Caller, callerId, type HttpContext, type HttpEnv } from './http-context.ts';
import { ValidationError } from './failure.ts';

/** Reads bodies of one content type, before the schema of a route checks them. */
export interface BodyReader {
  /** In lower case, without parameters: `application/json`. */
  readonly mediaType: string;
  readonly bodyBytesMax: number;
  /** The expected content, as the end of a sentence: `a JSON object`. */
  readonly expected: string;
  /**
   * @param contentType the header as received, with its parameters
   * @returns the input of the route's validators, in place of the received body
   * @throws AppError for a body that is not of its type, or that is not accepted here
   */
  read(bytes: Buffer, contentType: string): BodyRead;
}

export interface BodyRead {
  readonly contentType: string;
  readonly body: string | Uint8Array<ArrayBuffer>;
}

export interface ReadBodyParts {
  readonly limits: Omit<BodyLimits, 'bodyBytesMax'>;
  readonly shares: BodyShares;
}

/** Name under which the bodies of unauthenticated callers are counted. */
const anonymous = 'anonymous';

/**
 * Reads the body of a request, and counts its memory until the request is answered. A body of a content type without a
 * reader is read up to the bound of the first reader, then rejected with 415.
 */
export function createReadBody(
  { limits, shares }: ReadBodyParts,
  readers: readonly [BodyReader, ...BodyReader[]],
): MiddlewareHandler<HttpEnv> {
  return async (context, next) => {
    const contentType = context.req.header('content-type') ?? '';
    const mediaType = contentType.split(';')[0]?.trim().toLowerCase();
    const reader = readers.find((one) => one.mediaType === mediaType) ?? null;
    const { bodyBytesMax, expected } = reader ?? readers[0];
    const hold = shares.hold(holderOf(context));
    try {
      const bytes = await readBytes(context.env.incoming, { ...limits, bodyBytesMax }, hold);
      if (bytes.length === 0) throw wrongBody(`is missing; send ${expected}`);
      if (reader === null) throw new AppError('unsupported_media_type');
      const read = reader.read(bytes, contentType);
      const { method, url } = context.req;
      context.req.raw = new Request(url, { method, headers: headersOf(context, read.contentType), body: read.body });
      context.set('body', read.body);
      await next();
    } finally {
      hold.release();
    }
  };
}

/** Returns the headers without those that describe the body as received, since the body was decoded. */
function headersOf({ req }: HttpContext, contentType: string): Headers {
  const headers = new Headers(req.raw.headers);
  for (const name of ['content-length', 'content-encoding', 'transfer-encoding']) headers.delete(name);
  headers.set('content-type', contentType);
  return headers;
}

export const wrongBody = (message: string): ValidationError => new ValidationError([{ field: 'body', message }]);

function holderOf(context: HttpContext): string {
  const caller: Caller | undefined = context.get('caller');
  return caller === undefined ? anonymous : callerId(caller);
}

async function readBytes(incoming: IncomingMessage, limits: BodyLimits, hold: BodyHold): Promise<Buffer> {
  try {
    return Buffer.concat(await collectBody(incoming, limits, (bytes) => hold.grow(bytes)));
  } catch (error) {
    if (!(error instanceof ClientGoneError)) throw error;
    throw new AppError('invalid_request_error', { message: 'The connection closed before the request was complete.' });
  }
}
