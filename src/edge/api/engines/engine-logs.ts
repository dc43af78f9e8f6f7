import type { LogLine } from '#core/fleet/fleet.ts';

const aliveEveryMs = 15_000;
const encoder = new TextEncoder();

/**
 * Streams lines as server-sent events: `data: {"replica":"…","line":"…"}`, and a comment every 15 seconds, which keeps
 * proxies from closing the connection. Ends with the lines, or when the reader leaves.
 * @param left aborted when the reader leaves, to end the source of the lines
 */
export function toEvents(lines: AsyncIterable<LogLine>, left: AbortController): ReadableStream<Uint8Array> {
  const iterator = lines[Symbol.asyncIterator]();
  let next: Promise<IteratorResult<LogLine>> | null = null;
  return new ReadableStream<Uint8Array>({
    async pull(controller) {
      next ??= iterator.next();
      const result = await within(next, aliveEveryMs);
      if (result === null) {
        controller.enqueue(encoder.encode(':\n'));
        return;
      }
      next = null;
      if (result.done === true) controller.close();
      else controller.enqueue(encoder.encode(`data: ${JSON.stringify(toLogAnswer(result.value))}\n\n`));
    },
    async cancel() {
      left.abort();
      await iterator.return?.();
    },
  });
}

export function toLogAnswer({ replicaId, line }: LogLine): { replica: string | null; line: string } {
  return { replica: replicaId, line };
}

/** @returns null if the promise takes longer */
async function within<T>(promise: Promise<T>, timeoutMs: number): Promise<T | null> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<null>((resolve) => {
    timer = setTimeout(resolve, timeoutMs, null);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}
