import { isPublicAddress, literalAddress } from '#base/net/net.ts';

/** Rule for addresses of webhooks. */
export interface AddressRule {
  /**
   * `host` or `host:port` that the operator allows beyond the internet: plain HTTP and any address are accepted.
   * Without a port: 80 and 443.
   */
  readonly allowedHosts: readonly string[];
}

const urlCharsMax = 2048;
const ports: ReadonlySet<number> = new Set([443, 8443]);

export const portOf = (url: URL): number => Number(url.port || (url.protocol === 'http:' ? 80 : 443));

/** True if the operator allows the host beyond public addresses. */
export function isAllowedHost({ allowedHosts }: AddressRule, url: URL): boolean {
  const port = portOf(url);
  const host = url.hostname.toLowerCase();
  return allowedHosts.includes(`${host}:${port}`) || ((port === 80 || port === 443) && allowedHosts.includes(host));
}

/** Returns the problem of an address, to follow the field's name in a message; null if there is none. */
export function problemOfUrl(rule: AddressRule, text: string): string | null {
  const url = text.length > urlCharsMax ? null : URL.parse(text);
  if (url === null) return `must be a URL of at most ${urlCharsMax} characters`;
  if (url.username !== '' || url.password !== '') return 'must not contain a user name or password';
  if (url.hash !== '') return 'must not have a fragment';
  const isHttp = url.protocol === 'https:' || url.protocol === 'http:';
  if (isHttp && isAllowedHost(rule, url)) return null;
  if (url.protocol !== 'https:') return 'must begin with https://';
  if (!ports.has(portOf(url))) return `must use port ${[...ports].join(' or ')}`;
  const literal = literalAddress(url.hostname);
  if (literal !== null && !isPublicAddress(literal)) return 'must name a public address';
  return null;
}
