import { type ScanBounds, scanDocument } from '#base/json/json.ts';
import { InvalidJsonError, ValidationError } from './failure.ts';
import { type BodyReader, wrongBody } from './read-body.ts';

/** Bounds of a JSON body, larger than any of these APIs needs. */
const bodyBounds: ScanBounds = { membersMax: 100, membersInAllMax: 1000, depthMax: 16 };

/**
 * Reads bodies of the JSON APIs: at most 1 MiB, application/json, UTF-8, one JSON object without repeated members
 * (readers disagree on which of the two applies).
 */
export const jsonBody: BodyReader = {
  mediaType: 'application/json',
  bodyBytesMax: 1_048_576,
  expected: 'a JSON object',
  read(bytes) {
    const text = decode(bytes);
    checkObject(text);
    return { contentType: 'application/json', body: text };
  },
};

/** Reads bodies of the generic API: at most 100 KiB. */
export const smallJsonBody: BodyReader = { ...jsonBody, bodyBytesMax: 102_400 };

function decode(bytes: Buffer): string {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch (error) {
    if (error instanceof TypeError) throw new InvalidJsonError('is not UTF-8');
    throw error;
  }
}

function checkObject(text: string): void {
  const scan = scanDocument(Buffer.from(text).toString('latin1'), bodyBounds);
  if (!scan.ok && scan.exceeds) throw wrongBody(`exceeds a limit: ${scan.reason}`);
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    if (error instanceof SyntaxError) throw new InvalidJsonError('is not valid JSON');
    throw error;
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) throw wrongBody('must be a JSON object');
  const seen = new Set<string>();
  for (const { key } of scan.ok ? scan.members : []) {
    if (seen.has(key)) throw new ValidationError([{ field: key, message: 'appears twice' }]);
    seen.add(key);
  }
}
