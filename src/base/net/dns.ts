import { readFile, stat } from 'node:fs/promises';
import { Resolver } from 'node:dns/promises';
import { isIP } from 'node:net';

/**
 * Resolves host names. c-ares queries the name servers on sockets of this process, because the system's own getaddrinfo
 * keeps a thread for as long as a name server is silent, and two such threads delay every other name. Of the system's
 * sources only the hosts file and resolv.conf (name servers and search domains) are used, and none that a machine adds
 * to them, such as multicast DNS.
 */
export interface Names {
  /**
   * Returns all addresses of a name, IPv4 and IPv6 alternating, IPv4 first.
   * @param signal cancels the query
   * @throws Error for an unknown name or if no name server answers; the reason of `signal` if it aborts
   */
  readonly resolve: (name: string, signal?: AbortSignal) => Promise<readonly string[]>;
}

export interface NamesOptions {
  /** `address` or `address:port` of name servers; those of resolv.conf where absent. */
  readonly servers?: readonly string[];
  readonly hostsFile?: string;
  readonly resolvFile?: string;
  /** Milliseconds that one query to one name server may take; its second try takes at most twice as long. */
  readonly timeoutMs?: number;
}

const tries = 2;
/** Milliseconds that all queries about one name may take together. */
const wholeMs = 10_000;
/** Milliseconds to wait for the other address family once one has addresses: some name servers answer only A. */
const otherFamilyMs = 500;
const nameCharsMax = 253;
/** Search domains that are used; further ones in resolv.conf are ignored. */
const searchMax = 6;

interface Known<T> {
  readonly version: string;
  readonly value: T;
}

export function createNames(options: NamesOptions = {}): Names {
  const { hostsFile = '/etc/hosts', resolvFile = '/etc/resolv.conf', timeoutMs = 2000, servers } = options;
  const hosts = createFile(hostsFile, parseHosts);
  const search = createFile(resolvFile, parseSearch);
  return {
    async resolve(text, signal) {
      const name = text.toLowerCase().replace(/\.$/, '');
      if (isIP(name) !== 0) return [name];
      if (name === '' || name.length > nameCharsMax) throw unknown(text);
      const written = (await hosts())?.get(name) ?? (isLocalhost(name) ? ['127.0.0.1', '::1'] : null);
      if (written !== null) return written;
      const isWhole = text.endsWith('.');
      const domains = isWhole ? [] : ((await search()) ?? []);
      signal?.throwIfAborted();
      const question = ask({ timeoutMs, servers }, [name, ...domains.map((domain) => `${name}.${domain}`)]);
      return whileNotAborted(question, signal);
    },
  };
}

/** True for names that no name server may be asked for: RFC 6761. */
const isLocalhost = (name: string): boolean => name === 'localhost' || name.endsWith('.localhost');

const unknown = (name: string): Error =>
  Object.assign(new Error(`the host name ${name} is unknown`), { code: 'ENOTFOUND' });

interface Question {
  readonly answer: Promise<readonly string[]>;
  readonly cancel: () => void;
}

/** Returns the addresses of the first name that has any. */
function ask(
  { timeoutMs, servers }: { readonly timeoutMs: number; readonly servers: readonly string[] | undefined },
  names: readonly string[],
): Question {
  // One resolver per question: it reads the current resolv.conf, and cancels no other question.
  const resolver = new Resolver({ timeout: timeoutMs, tries });
  if (servers !== undefined) resolver.setServers(servers);
  const timer = setTimeout(() => resolver.cancel(), wholeMs);
  const answer = (async () => {
    let first: unknown = null;
    for (const name of names) {
      try {
        return await bothFamilies(resolver, name);
      } catch (error) {
        first ??= error;
        // If no name server answers, none answers for another name. Some reject names without a dot.
        if (!isAnswered(error)) break;
      }
    }
    throw first;
  })().finally(() => clearTimeout(timer));
  return { answer, cancel: () => resolver.cancel() };
}

const hasCode = (error: unknown, codes: readonly string[]): boolean =>
  error instanceof Error && 'code' in error && codes.includes(String(error.code));

const isUnknown = (error: unknown): boolean => hasCode(error, ['ENOTFOUND', 'ENODATA']);
/** True if a name server has answered. */
const isAnswered = (error: unknown): boolean => isUnknown(error) || hasCode(error, ['EREFUSED', 'ESERVFAIL']);

async function bothFamilies(resolver: Resolver, name: string): Promise<readonly string[]> {
  const found: (readonly string[])[] = [[], []];
  const failures: Error[] = [];
  const { promise: late, resolve } = Promise.withResolvers<void>();
  let timer: NodeJS.Timeout | undefined;
  const take = (family: number, addresses: readonly string[]): void => {
    found[family] = addresses;
    timer ??= setTimeout(resolve, otherFamilyMs);
  };
  const asked = [resolver.resolve4(name), resolver.resolve6(name)].map((question, family) =>
    question.then(
      (addresses) => take(family, addresses),
      (error: Error) => void failures.push(error),
    ),
  );
  await Promise.race([Promise.all(asked), late]);
  clearTimeout(timer);
  // Nobody waits for later answers.
  resolver.cancel();
  const [four = [], six = []] = found;
  if (four.length > 0 || six.length > 0) return interleave(four, six);
  throw failures.find((failure) => !isUnknown(failure)) ?? unknown(name);
}

function interleave(four: readonly string[], six: readonly string[]): readonly string[] {
  const length = Math.max(four.length, six.length);
  return Array.from({ length }, (_, n) => [four[n], six[n]]).flatMap((pair) =>
    pair.filter((address) => address !== undefined),
  );
}

function whileNotAborted({ answer, cancel }: Question, signal: AbortSignal | undefined): Promise<readonly string[]> {
  if (signal === undefined) return answer;
  return new Promise((resolve, reject) => {
    const leave = (): void => {
      cancel();
      reject(signal.reason as Error);
    };
    signal.addEventListener('abort', leave, { once: true });
    answer.then(resolve, reject).finally(() => signal.removeEventListener('abort', leave));
  });
}

/** Reads a system file, again only if it has changed; null if it cannot be read. */
function createFile<T>(path: string, parse: (text: string) => T): () => Promise<T | null> {
  let known: Known<T> | null = null;
  return async () => {
    try {
      const { mtimeMs, size, ino } = await stat(path);
      const version = `${mtimeMs} ${size} ${ino}`;
      if (known?.version !== version) known = { version, value: parse(await readFile(path, 'utf8')) };
      return known.value;
    } catch {
      return null;
    }
  };
}

/** Returns addresses by name, in the file's order. */
function parseHosts(text: string): ReadonlyMap<string, readonly string[]> {
  const found = new Map<string, string[]>();
  for (const [address = '', ...names] of linesOf(text)) {
    if (isIP(address) === 0) continue;
    for (const name of names.map((one) => one.toLowerCase())) {
      const addresses = found.get(name);
      if (addresses === undefined) found.set(name, [address]);
      else if (!addresses.includes(address)) addresses.push(address);
    }
  }
  return found;
}

/** Returns the search domains; the last line with search domains applies. */
function parseSearch(text: string): readonly string[] {
  const lines = linesOf(text).filter(([word]) => word === 'search' || word === 'domain');
  const domains = lines.at(-1)?.slice(1, 1 + searchMax) ?? [];
  return domains.map((domain) => domain.replace(/\.$/, '')).filter((domain) => domain !== '');
}

const linesOf = (text: string): readonly (readonly string[])[] =>
  text.split('\n').map((line) =>
    line
      .replace(/[#;].*$/, '')
      .trim()
      .split(/\s+/),
  );
