import type { ReachedNode, Unreached } from '#core/runs/runner/runner.ts';

/**
 * Explanations of why a run could not log in to a node. Terraform reports any failure between the connection and the
 * shell as a failed authentication, and the proxy between a run and its nodes accepts every connection before it
 * reaches the node.
 */

export interface ConnectionFacts {
  /** Ports that the run's network recorded as unreachable. */
  readonly unreached: readonly Unreached[];
  /** The cluster's nodes, as registered now. */
  readonly nodes: readonly ReachedNode[];
}

interface Place {
  readonly host: string;
  readonly port: number;
}

/** Terraform's message when a connection times out: the error of its last attempt. */
const lastPattern = /timeout - last error: (.*)$/s;
const loginPattern = /SSH authentication failed \((?:([^@\s]*)@)?(\S+):(\d{1,5})\): (.*)$/s;
const dialPattern = /dial tcp (\S+):(\d{1,5}): (.*)$/s;
const lookupPattern = /dial tcp: lookup (\S+?)(?: on \S+)?: no such host/;

/** Messages of Go's net package, with the codes of their errors. */
const dialTroubles: readonly (readonly [string, string])[] = [
  ['connection refused', 'ECONNREFUSED'],
  ['i/o timeout', 'ETIMEDOUT'],
  ['no route to host', 'EHOSTUNREACH'],
  ['network is unreachable', 'ENETUNREACH'],
];

/**
 * @param error the first error of a phase, in one sentence
 * @returns the error with a cause that says what to do; unchanged if it is about something else
 */
export function explainConnection(error: string, facts: ConnectionFacts): string {
  const last = lastPattern.exec(error);
  if (last === null) return error;
  const cause = causeOf(last[1] ?? '', facts);
  return cause === null ? error : `${error.slice(0, last.index)}${cause}`;
}

function causeOf(last: string, facts: ConnectionFacts): string | null {
  const [, user = '', host = '', port = '', why] = loginPattern.exec(last) ?? [];
  if (why !== undefined) return ofLogin({ host: bare(host), port: Number(port) }, user, why, facts);
  if (last === '<nil>' || last === '%!w(<nil>)') return silence(facts);
  return ofDial(last, facts);
}

function ofDial(last: string, facts: ConnectionFacts): string | null {
  const [, name] = lookupPattern.exec(last) ?? [];
  if (name !== undefined) return `the host name ${name} is unknown: correct the address of the node`;
  const [, host = '', port = '', why] = dialPattern.exec(last) ?? [];
  if (why === undefined) return null;
  const [, trouble = why] = dialTroubles.find(([text]) => why.includes(text)) ?? [];
  return unreachedCause({ host: bare(host), port: Number(port) }, trouble, facts);
}

function ofLogin(place: Place, user: string, why: string, facts: ConnectionFacts): string | null {
  const at = textOf(place);
  if (why.includes('knownhosts:')) {
    return (
      `${at} has a different host key than the host_key of the node. Terraform requests a server's ECDSA key first, ` +
      'then RSA, then Ed25519: set host_key to the first of these that the server has, such as the content of ' +
      '/etc/ssh/ssh_host_ecdsa_key.pub. If host_key is already correct and the machine was not reinstalled, ' +
      'another machine answers at this address'
    );
  }
  if (why.includes('unable to authenticate')) {
    return (
      `${at} rejected the login of ${user === '' ? 'the run' : user}: add the public_key of the cluster's access_identity ` +
      'to ~/.ssh/authorized_keys of that user'
    );
  }
  const noted = facts.unreached.findLast(({ host, port }) => host === place.host && port === place.port);
  if (noted !== undefined) return unreachedCause(place, noted.trouble, facts);
  if (!/\bEOF\b|connection reset/.test(why)) return null;
  return `${at} closed the connection before the login: check that this is the port of its SSH server, and read the log of that server`;
}

function unreachedCause(place: Place, trouble: string, { nodes }: ConnectionFacts): string {
  const at = textOf(place);
  const isOfNode = nodes.some(({ address, sshPort }) => address === place.host && sshPort === place.port);
  if (!isOfNode) {
    return (
      `${at} does not respond, and no node of the cluster has this address and port now: resources that were created under an ` +
      'earlier address are changed and destroyed there, so restore that address of the node until this is done'
    );
  }
  if (trouble === 'ECONNREFUSED') {
    return `${at} refused the connection: start its SSH server, or correct the node's address and ssh_port`;
  }
  if (trouble === 'ENOTFOUND') return `the host name ${place.host} is unknown: correct the address of the node`;
  return (
    `${at} did not respond (${trouble}): check that the machine runs, that the node's address and ssh_port are correct, and ` +
    'that no firewall blocks the connection'
  );
}

/** Returns the cause of a timeout without an error: Terraform does not report where it waited. */
function silence(facts: ConnectionFacts): string {
  const noted = facts.unreached.at(-1);
  if (noted !== undefined) return unreachedCause(noted, noted.trouble, facts);
  return 'a node accepted the connection but did not respond: check its SSH server';
}

const textOf = ({ host, port }: Place): string => `${host}, port ${port},`;
const bare = (host: string): string => host.replace(/^\[(.*)\]$/, '$1');
