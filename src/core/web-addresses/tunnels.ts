import type { Duplex } from 'node:stream';
import type { Client } from 'ssh2';
import { loadSsh2 } from '#base/ssh2.ts';
import type { Exposure, ExposureSources, PlaceNode } from './types.ts';

/**
 * Connections through a node's sshd to ports that only the node itself can reach: one session per node for all of them.
 */
export interface Tunnels {
  /** @throws Error if the login fails, or nothing listens on the port */
  open(exposure: Exposure, node: PlaceNode, port: number): Promise<Duplex>;
  /** Ends the sessions and all their connections. */
  close(): void;
}

const readyTimeoutMs = 10_000;
const openTimeoutMs = 10_000;
/** Time that an unused session is kept for the next page. */
const idleMs = 60_000;
const keepaliveMs = 15_000;

/** Algorithms for the stored type of host key: a key of another type would be unknown. */
const hostKeyAlgorithms: Readonly<Record<string, readonly string[]>> = {
  'ssh-rsa': ['rsa-sha2-512', 'rsa-sha2-256'],
};

interface Session {
  readonly ready: Promise<Client>;
  channels: number;
  idle: NodeJS.Timeout | null;
  readonly end: () => void;
}

export function createTunnels(sources: Pick<ExposureSources, 'privateKey'>): Tunnels {
  const sessions = new Map<string, Session>();

  function sessionTo(clusterId: string, node: PlaceNode): Session {
    const name = JSON.stringify([clusterId, node.address, node.sshPort, node.sshUser, node.hostKey]);
    const known = sessions.get(name);
    if (known !== undefined) return known;
    const client = new (loadSsh2().Client)();
    const forget = (): void => {
      if (sessions.get(name) === session) sessions.delete(name);
      if (session.idle !== null) clearTimeout(session.idle);
    };
    const ready = logIn(client, node, () => sources.privateKey(clusterId));
    const end = (): void => {
      forget();
      client.end();
    };
    const session: Session = { ready, channels: 0, idle: null, end };
    client.on('close', forget);
    ready.catch(end);
    sessions.set(name, session);
    return session;
  }

  function leave(session: Session): void {
    session.channels -= 1;
    if (session.channels === 0) session.idle = setTimeout(session.end, idleMs).unref();
  }

  return {
    async open({ clusterId }, node, port) {
      const session = sessionTo(clusterId, node);
      if (session.idle !== null) clearTimeout(session.idle);
      session.idle = null;
      session.channels += 1;
      try {
        const channel = await forward(await session.ready, port);
        channel.once('close', () => leave(session));
        return channel;
      } catch (error) {
        leave(session);
        throw error;
      }
    },
    close() {
      for (const { end } of sessions.values()) end();
    },
  };
}

async function logIn(client: Client, node: PlaceNode, privateKey: () => Promise<string | null>): Promise<Client> {
  // Before any await: an error without a listener would end the process.
  const failed = new Promise<never>((_, reject) => client.on('error', reject));
  failed.catch(() => undefined);
  const key = await privateKey();
  if (key === null) throw new Error('the cluster no longer exists');
  const closed = new Promise<never>((_, reject) => {
    client.on('close', () => reject(new Error('the node closed the session')));
  });
  closed.catch(() => undefined);
  const ready = new Promise<Client>((resolve) => client.on('ready', () => resolve(client)));
  client.connect({
    host: node.address,
    port: node.sshPort,
    username: node.sshUser,
    privateKey: key,
    readyTimeout: readyTimeoutMs,
    keepaliveInterval: keepaliveMs,
    ...hostCheck(node.hostKey),
  });
  return Promise.race([ready, failed, closed]);
}

/** Returns the check of a host's key. Without a stored key nothing is checked, as for runs. */
function hostCheck(hostKey: string | null): object {
  if (hostKey === null) return {};
  const [type = '', body = ''] = hostKey.split(' ');
  const expected = Buffer.from(body, 'base64');
  return {
    algorithms: { serverHostKey: hostKeyAlgorithms[type] ?? [type] },
    hostVerifier: (key: Buffer) => key.equals(expected),
  };
}

function forward(client: Client, port: number): Promise<Duplex> {
  return new Promise((resolve, reject) => {
    let isLate = false;
    const timer = setTimeout(() => {
      isLate = true;
      reject(new Error('the node did not respond'));
    }, openTimeoutMs);
    client.forwardOut('127.0.0.1', 0, '127.0.0.1', port, (error, channel) => {
      clearTimeout(timer);
      if (error !== undefined) reject(error);
      else if (isLate) channel.destroy();
      else resolve(channel);
    });
  });
}
