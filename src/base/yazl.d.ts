/** The part of yazl that is used here. */
declare module 'yazl' {
  import type { Readable } from 'node:stream';

  class ZipFile {
    addBuffer(
      bytes: Buffer,
      path: string,
      options: {
        readonly mtime: Date;
        readonly mode: number;
        readonly compress: boolean;
        readonly forceDosTimestamp: boolean;
      },
    ): void;
    end(): void;
    readonly outputStream: Readable;
  }
  const yazl: { readonly ZipFile: typeof ZipFile };
  export default yazl;
}
