/** Input of the keeper, the program that runs beside a phase until its end. */

export interface KeeperPlan {
  /** A line for the log before anything runs; null: none. */
  readonly say: string | null;
  /** Null: nothing is recorded about the command. */
  readonly watch: KeeperWatch | null;
  /** The user that the keeper becomes once the phase runs; null if the gateway is not root. */
  readonly user: { readonly uid: number; readonly gid: number } | null;
  /** Null: the phase has the machine's network. */
  readonly network: KeeperNetwork | null;
}

export interface KeeperWatch {
  /** Prefix of the phase's files: the keeper writes `.times` and `.because`. */
  readonly files: string;
  readonly workDir: string;
  /** Maximum bytes on disk of the work folder and all output together; a phase that exceeds it is killed. */
  readonly diskBytesMax: number;
  /** Bytes that earlier phases have printed. */
  readonly printedBytes: number;
  /** Maximum output of this phase in bytes; a phase that exceeds it is killed, and its output is cut. */
  readonly logBytesMax: number;
}

/** A network with only these listeners. */
export interface KeeperNetwork {
  readonly relays: readonly Relay[];
  readonly proxy: ProxyRules;
}

/** One address and port of a node. */
export interface Relay {
  /** Address in the phase's network. */
  readonly address: string;
  readonly port: number;
  /** Host in the machine's network. */
  readonly host: string;
}

/** Targets that the HTTP proxy allows. */
export interface ProxyRules {
  readonly port: number;
  readonly nodes: readonly ReachedNode[];
  /** Allowed ports of public addresses: `all`, or a list; empty: none. */
  readonly publicPorts: readonly number[] | 'all';
}

/** A node that a run may reach. */
export interface ReachedNode {
  /** An IP address, or a name. */
  readonly address: string;
  readonly sshPort: number;
}

/** Loopback addresses, in the phase's own network, that stand for nodes with names. */
const namedNet = '127.77';

export interface PhaseNetwork {
  readonly network: KeeperNetwork;
  /** `/etc/hosts` of the phase. */
  readonly hosts: string;
}

/** @param publicPorts ports of public addresses that the proxy allows */
export function planNetwork(reach: readonly ReachedNode[], publicPorts: ProxyRules['publicPorts']): PhaseNetwork {
  const nodes = [...new Map(reach.map((node) => [`${node.address} ${node.sshPort}`, node])).values()];
  const names = [...new Set(nodes.map(({ address }) => address).filter((address) => !isAddress(address)))];
  const standIn = new Map(names.map((name, index) => [name, `${namedNet}.${index >> 8}.${index & 255}`]));
  const relays = nodes.map(({ address, sshPort }): Relay => {
    return { address: standIn.get(address) ?? address, port: sshPort, host: address };
  });
  const hosts = [
    '127.0.0.1 localhost',
    '::1 localhost',
    ...[...standIn].map(([name, address]) => `${address} ${name}`),
  ];
  const taken = new Set(relays.filter(({ address }) => address === '127.0.0.1').map(({ port }) => port));
  const port = [3128, 3129].find((free) => !taken.has(free)) ?? 3130;
  return { network: { relays, proxy: { port, nodes, publicPorts } }, hosts: `${hosts.join('\n')}\n` };
}

const isAddress = (text: string): boolean => text.includes(':') || /^[\d.]+$/.test(text);
