import type { Readable } from 'node:stream';
import { readLogBytes } from '#base/docker/docker.ts';
import { logChunkBytes } from '#core/runs/runner/types.ts';

/** Maximum bytes of unread output in memory. */
const aheadBytesMax = 4 * logChunkBytes;

/**
 * The output of a container, followed from its beginning, because a Docker engine cannot start at an offset. A later
 * reader skips what was read before.
 */
export class PhaseLog {
  #chunks: Buffer[] = [];
  /** Offsets in the whole output at which the buffered part begins and ends. */
  #begin = 0;
  #end = 0;
  #wanted = 0;
  #isOver = false;
  #error: Error | null = null;
  readonly #abort = new AbortController();
  readonly #waiting = new Set<() => void>();

  constructor(open: (signal: AbortSignal) => Promise<Readable>) {
    void this.#follow(open);
  }

  get isOver(): boolean {
    return this.#isOver;
  }

  /**
   * @param toEnd true if the container has ended: a chunk shorter than the maximum is then the last one
   * @throws the error of the connection, once everything before it was read
   */
  async read(offset: number, toEnd: boolean): Promise<Buffer> {
    this.#drop(offset);
    while (toEnd && !this.#isOver && this.#end - offset < logChunkBytes) await this.#change();
    if (this.#error !== null && this.#end <= offset) throw this.#error;
    return Buffer.concat(this.#chunks).subarray(offset - this.#begin, offset - this.#begin + logChunkBytes);
  }

  close(): void {
    this.#abort.abort();
    this.#tell();
  }

  async #follow(open: (signal: AbortSignal) => Promise<Readable>): Promise<void> {
    try {
      for await (const bytes of readLogBytes(await open(this.#abort.signal))) {
        this.#chunks.push(bytes);
        this.#end += bytes.length;
        this.#drop(this.#wanted);
        this.#tell();
        while (this.#end - this.#begin > aheadBytesMax && !this.#abort.signal.aborted) await this.#change();
      }
    } catch (error) {
      this.#error = error instanceof Error ? error : new Error(String(error));
    }
    this.#isOver = true;
    this.#tell();
  }

  #drop(offset: number): void {
    this.#wanted = offset;
    let first = this.#chunks[0];
    while (first !== undefined && this.#begin + first.length <= offset) {
      this.#begin += first.length;
      this.#chunks.shift();
      first = this.#chunks[0];
    }
    this.#tell();
  }

  #change(): Promise<void> {
    return new Promise((resolve) => this.#waiting.add(resolve));
  }

  #tell(): void {
    for (const resolve of this.#waiting) resolve();
    this.#waiting.clear();
  }
}
