import { boundaryOf } from './multipart-stream.ts';
import { type BodyReader, wrongBody } from './read-body.ts';

export interface MultipartBounds {
  readonly bodyBytesMax: number;
  /** Most parts, fields and files together. */
  readonly partsMax: number;
  /** The expected content, as the end of a sentence. */
  readonly expected: string;
}

/**
 * Creates a reader of forms with files. The form parser sees few parts, and a boundary with characters of RFC 2046
 * only.
 */
export function createMultipartBody({ bodyBytesMax, partsMax, expected }: MultipartBounds): BodyReader {
  return {
    mediaType: 'multipart/form-data',
    bodyBytesMax,
    expected,
    read(bytes, contentType) {
      const text = boundaryOf(contentType);
      if (countParts(bytes, `--${text}`, partsMax) > partsMax) throw wrongBody(`has more than ${partsMax} parts`);
      return { contentType: `multipart/form-data; boundary=${text}`, body: new Uint8Array(bytes) };
    },
  };
}

function countParts(bytes: Buffer, delimiter: string, partsMax: number): number {
  let count = 0;
  for (let at = bytes.indexOf(delimiter); at !== -1; at = bytes.indexOf(delimiter, at + delimiter.length)) {
    count += 1;
    if (count > partsMax + 1) break;
  }
  return count - 1;
}
