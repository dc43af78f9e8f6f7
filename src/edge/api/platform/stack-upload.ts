import { z } from '@hono/zod-openapi';
import type { MiddlewareHandler } from 'hono';
import { AppError } from '#base/errors.ts';
import { packageBytesMax } from '#core/stacks/stacks.ts';
import {
  type BodyLimits,
  type BodyShares,
  createMultipartBody,
  createReadBody,
  type HttpEnv,
  jsonBody,
} from '#edge/http/http.ts';
import { stackFields } from './stack-schemas.ts';

/** Bodies with a package: a form with the zip, or JSON with the URL of the zip. */

const file = z
  .custom<File>((value) => value instanceof File, 'must be a file, sent as one part with a file name')
  .openapi({ type: 'string', format: 'binary', description: 'Zip of at most 10 MiB' });

export const uploadSchema = z.strictObject({ file, ...stackFields }).openapi('UploadStack');

export const fetchSchema = z
  .strictObject({
    url: z.string().max(2048, 'must have at most 2048 characters').openapi({
      description: 'https URL of a zip of at most 10 MiB, at a public address; fetched once',
      example: 'https://example.org/queue.zip',
    }),
    ...stackFields,
  })
  .openapi('FetchStack');

/** Most bytes of the form besides the zip. */
const formBytesMax = 128 * 1024;

const multipartBody = createMultipartBody({
  bodyBytesMax: packageBytesMax + formBytesMax,
  // More parts than the form has fields.
  partsMax: 16,
  expected: 'a form with the zip as its part "file", or a JSON object with "url"',
});

export interface UploadParts {
  readonly limits: Omit<BodyLimits, 'bodyBytesMax'>;
  readonly shares: BodyShares;
}

/**
 * Returns middleware that reads a body with a package after authentication, so that no unauthorized caller uploads a
 * package in vain.
 */
export function createUploadBody(parts: UploadParts): MiddlewareHandler<HttpEnv> {
  const read = createReadBody(parts, [multipartBody, jsonBody]);
  return async (context, next) => {
    try {
      return await read(context, next);
    } catch (error) {
      const isTooLarge = error instanceof AppError && error.code === 'request_too_large';
      if (!isTooLarge) throw error;
      throw new AppError('package_too_large', { message: 'The package is larger than 10 MiB.' });
    }
  };
}
