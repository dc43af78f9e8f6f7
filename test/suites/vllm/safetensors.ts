import { closeSync, openSync, readSync, writeFileSync } from 'node:fs';

export interface Tensor {
  readonly dtype: string;
  readonly shape: readonly number[];
  readonly bytes: Buffer;
}

/** Eight bytes with the length of the header, the header as JSON, then the bytes of all tensors. */
const lengthBytes = 8;

/** Reads the tensors of a safetensors file whose names are wanted. */
export function readTensors(path: string, isWanted: (name: string) => boolean): Map<string, Tensor> {
  const file = openSync(path, 'r');
  const read = (length: number, position: number): Buffer => {
    const bytes = Buffer.alloc(length);
    readSync(file, bytes, 0, length, position);
    return bytes;
  };
  try {
    const headerLength = Number(read(lengthBytes, 0).readBigUInt64LE());
    const { __metadata__: _, ...header } = JSON.parse(read(headerLength, lengthBytes).toString()) as Header;
    const wanted = Object.entries(header).filter(([name]) => isWanted(name));
    return new Map(
      wanted.map(
        ([
          name,
          {
            dtype,
            shape,
            data_offsets: [start, end],
          },
        ]) => {
          return [name, { dtype, shape, bytes: read(end - start, lengthBytes + headerLength + start) }];
        },
      ),
    );
  } finally {
    closeSync(file);
  }
}

interface Header {
  readonly [name: string]: {
    readonly dtype: string;
    readonly shape: number[];
    readonly data_offsets: [number, number];
  };
}

export function writeTensors(path: string, tensors: ReadonlyMap<string, Tensor>): void {
  const header: Record<string, unknown> = {};
  let end = 0;
  for (const [name, { dtype, shape, bytes }] of tensors) {
    header[name] = { dtype, shape, data_offsets: [end, end + bytes.length] };
    end += bytes.length;
  }
  const text = Buffer.from(JSON.stringify(header));
  const length = Buffer.alloc(lengthBytes);
  length.writeBigUInt64LE(BigInt(text.length));
  writeFileSync(path, Buffer.concat([length, text, ...[...tensors.values()].map(({ bytes }) => bytes)]));
}
