/** Declares the used part of yauzl. */
declare module 'yauzl' {
  export interface Entry {
    readonly versionMadeBy: number;
    readonly generalPurposeBitFlag: number;
    readonly compressionMethod: number;
    readonly crc32: number;
    readonly compressedSize: number;
    readonly uncompressedSize: number;
    readonly externalFileAttributes: number;
    readonly relativeOffsetOfLocalHeader: number;
    readonly fileNameRaw: Buffer;
    readonly extraFields: readonly { readonly id: number; readonly data: Buffer }[];
  }

  export interface ZipFile {
    readonly entryCount: number;
    eachEntry(): AsyncIterable<Entry>;
    close(): void;
  }

  const yauzl: {
    fromBufferPromise(
      buffer: Buffer,
      options: { readonly decodeStrings: boolean; readonly validateEntrySizes: boolean },
    ): Promise<ZipFile>;
    getFileNameLowLevel(
      flags: number,
      raw: Buffer,
      extraFields: Entry['extraFields'],
      strictFileNames: boolean,
    ): string;
    /** Returns the problem of a name that leads out of a folder; null for other names. */
    validateFileName(name: string): string | null;
  };
  export default yauzl;
}
