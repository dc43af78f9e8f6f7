import { readFileSync } from 'node:fs';
import { basename } from 'node:path';
import { FailedError, UsageError } from '#edge/cli/shell/shell.ts';

/** Reads files for a message: text as text, images as data. The content decides, not the file's name. */

export interface ImagePart {
  readonly type: 'image_url';
  readonly image_url: { readonly url: string };
}

export interface TextPart {
  readonly type: 'text';
  readonly text: string;
}

export type Content = string | (TextPart | ImagePart)[];

const bytesMax = 20_971_520;

/** First bytes of image files, by media type. */
const magics: readonly (readonly [mediaType: string, at: number, bytes: string])[] = [
  ['image/png', 0, '\u0089PNG\r\n\u001a\n'],
  ['image/jpeg', 0, '\u00ff\u00d8\u00ff'],
  ['image/gif', 0, 'GIF8'],
  ['image/webp', 8, 'WEBP'],
];

function mediaTypeOf(bytes: Buffer): string | null {
  const head = bytes.toString('latin1', 0, 16);
  return magics.find(([, at, begin]) => head.startsWith(begin, at))?.[0] ?? null;
}

function readBytes(path: string): Buffer {
  let bytes: Buffer;
  try {
    bytes = readFileSync(path);
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? String(error.code) : '';
    throw new UsageError(code === 'ENOENT' ? `there is no ${path}` : `${path} cannot be read (${code})`);
  }
  if (bytes.length > bytesMax) throw new FailedError(`${path} is larger than ${bytesMax} bytes`);
  return bytes;
}

/** Reads a file as a part of a message. @throws UsageError, FailedError */
export function readFilePart(path: string): TextPart | ImagePart {
  const bytes = readBytes(path);
  const mediaType = mediaTypeOf(bytes);
  if (mediaType !== null) return imagePart(`data:${mediaType};base64,${bytes.toString('base64')}`);
  try {
    const text = new TextDecoder('utf-8', { fatal: true }).decode(bytes);
    return { type: 'text', text: `File ${basename(path)}:\n\n${text}` };
  } catch {
    throw new FailedError(`${path} is neither UTF-8 text nor a PNG, JPEG, GIF or WebP image`);
  }
}

/** Returns an image by its address, or from a file. */
export function readImagePart(source: string): ImagePart {
  if (/^(https?|data):/.test(source)) return imagePart(source);
  const part = readFilePart(source);
  if (part.type === 'image_url') return part;
  throw new FailedError(`${source} is not a PNG, JPEG, GIF or WebP image`);
}

const imagePart = (url: string): ImagePart => ({ type: 'image_url', image_url: { url } });

/** Joins words and parts into one content. Text without images is a string, which every model's template accepts. */
export function contentOf(words: string, parts: readonly (TextPart | ImagePart)[]): Content {
  const texts = parts.flatMap((part) => (part.type === 'text' ? [part.text] : []));
  const text = [...texts, ...(words === '' ? [] : [words])].join('\n\n');
  const images = parts.filter((part) => part.type === 'image_url');
  return images.length === 0 ? text : [...images, ...(text === '' ? [] : [{ type: 'text' as const, text }])];
}
