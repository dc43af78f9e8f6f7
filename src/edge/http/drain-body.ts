import type { IncomingMessage } from 'node:http';

/** Milliseconds for which the rest of a rejected body is read, before the connection closes. */
const drainMs = 10_000;

/** Reads the rest of a rejected body: a client that is cut off while it sends never reads the answer. */
export function drainBody(incoming: IncomingMessage): void {
  if (incoming.complete || incoming.destroyed) return;
  const { socket } = incoming;
  const late = setTimeout(() => socket.destroy(), drainMs);
  late.unref();
  incoming.once('close', () => clearTimeout(late));
  incoming.once('end', () => clearTimeout(late));
  incoming.resume();
}
