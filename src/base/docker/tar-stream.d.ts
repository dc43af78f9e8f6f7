/** The part of tar-stream that is used here. */
declare module 'tar-stream' {
  import type { Readable, Writable } from 'node:stream';

  interface Headers {
    readonly name: string;
    readonly type: string;
    readonly size: number;
    readonly mode: number;
    readonly uid: number;
    readonly gid: number;
    readonly mtime: Date;
  }

  interface Pack extends Readable {
    entry(headers: Omit<Headers, 'size'>, bytes: Buffer): unknown;
    finalize(): void;
  }

  type TakeEntry = (headers: Headers, content: Readable, next: (error?: Error) => void) => void;

  interface Extract extends Writable {
    on(event: 'entry', take: TakeEntry): this;
    on(event: string, listener: (...args: readonly never[]) => void): this;
  }

  const tar: { readonly pack: () => Pack; readonly extract: () => Extract };
  export default tar;
}
