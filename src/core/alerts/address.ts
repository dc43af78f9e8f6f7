import { isPublicAddress, literalAddress } from '#base/outbound.ts';

/** Where webhooks may be sent to. */
export interface AddressRule {
  /**
   * `host` or `host:port` that the operator allows beyond the internet: plain HTTP, and whatever address it has. Without
   * a port: 80 and 443.
   */
  readonly allowedHosts: readonly string[];
}

const urlCharsMax = 2048;
const ports: ReadonlySet<number> = new Set([443, 8443]);

export const portOf = (url: URL): number => Number(url.port || (url.protocol === 'http:' ? 80 : 443));

/** Whether the operator allows it beyond what is public. */
export function isAllowedHost({ allowedHosts }: AddressRule, url: URL): boolean {
  const port = portOf(url);
  const host = url.hostname.toLowerCase();
  return allowedHosts.includes(`${host}:${port}`) || ((port === 80 || port === 443) && allowedHosts.includes(host));
}

/** What is wrong with an address, as a sentence goes on after the field's name; null where nothing is. */
export function problemOfUrl(rule: AddressRule, text: string): string | null {
  const url = text.length > urlCharsMax ? null : URL.parse(text);
  if (url === null) return `must be a URL of at most ${urlCharsMax} characters`;
  if (url.username !== '' || url.password !== '') return 'must not have a user or a password in it';
  if (url.hash !== '') return 'must not have a fragment';
  const isHttp = url.protocol === 'https:' || url.protocol === 'http:';
  if (isHttp && isAllowedHost(rule, url)) return null;
  if (url.protocol !== 'https:') return 'must begin with https://';
  if (!ports.has(portOf(url))) return `must have no port but ${[...ports].join(' and ')}`;
  const literal = literalAddress(url.hostname);
  if (literal !== null && !isPublicAddress(literal)) return 'must not name an address that is not public';
  return null;
}
