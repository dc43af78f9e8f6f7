/** What the keeper of a phase is told: the program that stays beside a phase for as long as it runs. */

export interface KeeperPlan {
  /** A line for the log before anything is run; null: none. */
  readonly say: string | null;
  /** Null: nothing is written down of the command. */
  readonly watch: KeeperWatch | null;
  /** The user that the keeper becomes once the phase runs; null where the gateway is not root. */
  readonly user: { readonly uid: number; readonly gid: number } | null;
  /** Null: the phase has the machine's network. */
  readonly network: KeeperNetwork | null;
}

export interface KeeperWatch {
  /** What the names of its files begin with: it writes `.times` and `.because`. */
  readonly files: string;
  readonly workDir: string;
  /** Bytes on disk that the work folder and what phases printed may have; a phase that takes more is killed. */
  readonly diskBytesMax: number;
  /** Bytes that phases before have printed. */
  readonly printedBytes: number;
  /** Bytes that this phase may print; one that prints more is killed, and its output is cut. */
  readonly logBytesMax: number;
}

/** A network in which there are these listeners, and nothing else. */
export interface KeeperNetwork {
  readonly relays: readonly Relay[];
  readonly proxy: ProxyRules;
}

/** One address and port of a node. */
export interface Relay {
  /** In the network of the phase. */
  readonly address: string;
  readonly port: number;
  /** In the network of the machine. */
  readonly host: string;
}

/** What may be asked for through the HTTP proxy. */
export interface ProxyRules {
  readonly port: number;
  readonly nodes: readonly ReachedNode[];
  /** Ports of public addresses; `all`, or none at all where empty. */
  readonly publicPorts: readonly number[] | 'all';
}

/** A node that a run may reach. */
export interface ReachedNode {
  /** An IP address, or a name. */
  readonly address: string;
  readonly sshPort: number;
}

/** Addresses for nodes that have names: of the loopback of the phase's own network. */
const namedNet = '127.77';

export interface PhaseNetwork {
  readonly network: KeeperNetwork;
  /** `/etc/hosts` of the phase. */
  readonly hosts: string;
}

/** @param publicPorts of the internet, through the proxy */
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
