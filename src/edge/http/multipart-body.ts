import { boundaryOf } from './multipart-stream.ts';
import { type BodyReader, wrongBody } from './read-body.ts';

export interface MultipartBounds {
  readonly bodyBytesMax: number;
  /** Of fields and files together. */
  readonly partsMax: number;
  /** What is to be sent, as a sentence goes on. */
  readonly expected: string;
}

/** Reads forms with files: what parses them sees few parts, and a boundary of the characters that RFC 2046 has for it. */
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
