import type { IncomingMessage } from 'node:http';
import type { MiddlewareHandler } from 'hono';
import { AppError } from '#base/errors.ts';
import { scanDocument, type ScanBounds } from '#base/json-scan.ts';
import type { BodyHold, BodyShares } from './body-shares.ts';
import { type BodyLimits, ClientGoneError, collectBody } from './collect-body.ts';
import { type Caller, callerId, type HttpContext, type HttpEnv } from './env.ts';
import { ValidationError } from './failure.ts';

const bodyBytesMax = 1_048_576;
/** More than any of these APIs knows. */
const bodyBounds: ScanBounds = { membersMax: 100, membersInAllMax: 1000, depthMax: 16 };
/** Under which the bodies of those are counted who need not say who they are. */
const anonymous = 'anonymous';

const wrongBody = (message: string): ValidationError => new ValidationError([{ field: 'body', message }]);

export interface JsonBodyParts {
  readonly limits: Omit<BodyLimits, 'bodyBytesMax'>;
  readonly shares: BodyShares;
}

/**
 * Reads the body of the JSON APIs before its schema sees it: at most 1 MiB, application/json, UTF-8, one JSON object
 * without a member twice (readers disagree on which of the two counts). Its memory is held until it is answered.
 */
export function createJsonBody({ limits, shares }: JsonBodyParts): MiddlewareHandler<HttpEnv> {
  return async (context, next) => {
    const mediaType = (context.req.header('content-type') ?? '').split(';')[0]?.trim().toLowerCase();
    const hold = shares.hold(holderOf(context));
    try {
      const bytes = await readBytes(context.env.incoming, { ...limits, bodyBytesMax }, hold);
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
    } finally {
      hold.release();
    }
  };
}

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

function decode(bytes: Buffer): string {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch (error) {
    if (error instanceof TypeError) throw wrongBody('is not UTF-8');
    throw error;
  }
}

function checkObject(text: string): void {
  const scan = scanDocument(Buffer.from(text).toString('latin1'), bodyBounds);
  if (!scan.ok && scan.exceeds) throw wrongBody(`is more than is read here: ${scan.reason}`);
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    if (error instanceof SyntaxError) throw wrongBody('is not valid JSON');
    throw error;
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) throw wrongBody('must be a JSON object');
  const seen = new Set<string>();
  for (const { key } of scan.ok ? scan.members : []) {
    if (seen.has(key)) throw new ValidationError([{ field: key, message: 'is there twice' }]);
    seen.add(key);
  }
}
