import type { IncomingMessage } from 'node:http';

/** What is still read of a body that was refused, so that its sender gets to read the answer; then the socket goes. */
const drainMs = 10_000;

/** Reads on what nobody wants, for a while: a sender that is cut off in the middle never sees its refusal. */
export function drainBody(incoming: IncomingMessage): void {
  if (incoming.complete || incoming.destroyed) return;
  const { socket } = incoming;
  const late = setTimeout(() => socket.destroy(), drainMs);
  late.unref();
  incoming.once('close', () => clearTimeout(late));
  incoming.once('end', () => clearTimeout(late));
  incoming.resume();
}
