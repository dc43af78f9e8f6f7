import type { IncomingMessage } from 'node:http';

/** How long the rest of a refused body is read; then the connection is closed. */
const drainMs = 10_000;

/** Reads the rest of a refused body: a client that is cut off while it sends never reads the answer. */
export function drainBody(incoming: IncomingMessage): void {
  if (incoming.complete || incoming.destroyed) return;
  const { socket } = incoming;
  const late = setTimeout(() => socket.destroy(), drainMs);
  late.unref();
  incoming.once('close', () => clearTimeout(late));
  incoming.once('end', () => clearTimeout(late));
  incoming.resume();
}
