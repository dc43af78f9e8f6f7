import { type ChildProcess, spawn } from 'node:child_process';
import { closeSync, openSync } from 'node:fs';
import { connect, isIP, type Server, type Socket } from 'node:net';
import { programsPath } from './environment.ts';
import { join, proxyServer } from './keeper-proxy.ts';
import type { KeeperNetwork } from './keeper-plan.ts';
import { type Unreached, unreachedText } from './unreached.ts';

/**
 * A network namespace with only a loopback interface, which has the addresses of nodes. Listeners at the reachable
 * ports are passed to this process, which connects them to the machine's network. Programs inside have no other way
 * out, need no privilege, and have none over their network.
 */

/**
 * Listens at the ports in `HEADGATE_LISTEN`, passes the sockets to its parent process, and ends. If the parent ends
 * first, the listener fails, so that nothing starts.
 */
const listen = `
const { createServer } = require('node:net');
const wanted = JSON.parse(process.env.HEADGATE_LISTEN);
let left = wanted.length;
process.once('disconnect', () => process.exit(left === 0 ? 0 : 1));
const done = () => { left -= 1; if (left === 0) process.disconnect(); };
for (const [index, { address, port }] of wanted.entries()) {
  const server = createServer();
  server.on('error', (error) => process.send({ index, trouble: error.message }, done));
  server.listen({ host: address, port, exclusive: true, backlog: 128 }, () =>
    process.send({ index }, server, {}, () => { server.close(); done(); }));
}
`;

/** The last arguments are the command, which inherits no handle that was open for the listeners. */
const enter = `
set -e
ip link set lo up
for address in $HEADGATE_ADDRESSES; do
  case $address in
    *:*) ip -6 addr add "$address/128" dev lo nodad ;;
    *) ip addr add "$address/32" dev lo ;;
  esac
done
/proc/self/fd/4 -e "$HEADGATE_LISTENER"
exec 3>&- 4>&-
exec "$@"
`;

/** Time without data after which the run's log names a node. */
const silenceMs = 5000;

interface ListenerReport {
  readonly index: number;
  readonly trouble?: string;
}

/**
 * Starts a command in its own network.
 * @param asUser command prefix that switches to the run's user
 * @param say logs problems of listeners
 */
export function spawnInNetwork(
  { relays, proxy }: KeeperNetwork,
  { command, asUser, log }: { command: readonly string[]; asUser: readonly string[]; log: (text: string) => void },
): ChildProcess {
  const wanted = [...relays, { address: '127.0.0.1', port: proxy.port, host: null }];
  const addresses = new Set(relays.map(({ address }) => address).filter((address) => isOfNoLoopback(address)));
  const apart = ['unshare', '--user', '--map-root-user', '--net', '--'];
  const [program = '', ...args] = [...asUser, ...apart, '/bin/sh', '-c', enter, 'run', ...command];
  // Passed as an open handle: the run's user may have no access to the folder of this program.
  const own = openSync(process.execPath, 'r');
  const child = spawn(program, args, {
    stdio: ['ignore', 'inherit', 'inherit', 'ipc', own],
    env: {
      PATH: programsPath,
      HEADGATE_ADDRESSES: [...addresses].join(' '),
      HEADGATE_LISTENER: listen,
      HEADGATE_LISTEN: JSON.stringify(wanted.map(({ address, port }) => ({ address, port }))),
    },
  });
  closeSync(own);
  // A run's program takes a connection that ends for a failed login, and retries for minutes; so the log names the
  // port.
  const logged = new Set<string>();
  const logOnce = (unreached: Unreached): void => {
    const text = unreachedText(unreached);
    if (!logged.has(text)) log(text);
    logged.add(text);
  };
  child.on('message', (message, handle) => {
    const { index, trouble } = message as unknown as ListenerReport;
    const { address, port, host } = wanted[index] ?? { address: '', port: 0, host: null };
    if (trouble !== undefined) log(`this run cannot reach ${address}, port ${port} (${trouble})`);
    else if (host === null) accept(handle as Server, proxyServer(proxy));
    else
      accept(handle as Server, (socket) =>
        relay(socket, { host, port }, (trouble) => logOnce({ host, port, trouble })),
      );
  });
  // The channel closes once the listeners are passed on; if passing fails, the phase ends without having started.
  child.on('error', (error) => log(`the network of the run could not be created (${error.message})`));
  return child;
}

function accept(server: Server, serve: (socket: Socket) => void): void {
  server.on('connection', (socket) => {
    socket.on('error', () => socket.destroy());
    serve(socket);
  });
}

function relay(
  socket: Socket,
  to: { readonly host: string; readonly port: number },
  onTrouble: (trouble: string) => void,
): void {
  const upstream = connect(to);
  // An SSH server sends first, and at once.
  const timer = setTimeout(() => onTrouble(`no response within ${silenceMs / 1000} s`), silenceMs);
  const answered = (): void => clearTimeout(timer);
  upstream.once('data', answered).once('close', answered);
  upstream.once('error', (error) => {
    if (upstream.bytesRead === 0) onTrouble((error as NodeJS.ErrnoException).code ?? error.message);
  });
  socket.setNoDelay(true);
  upstream.setNoDelay(true);
  join(socket, upstream);
}

/** True for addresses that must be added: those of the loopback network exist already. */
function isOfNoLoopback(address: string): boolean {
  return isIP(address) !== 0 && !address.startsWith('127.') && address !== '::1';
}
