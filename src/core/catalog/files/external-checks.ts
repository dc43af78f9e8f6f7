import type { EngineFile } from './engine-file-schema.ts';
import type { FileProblem } from './zod-problems.ts';

type ExternalFile = Extract<EngineFile, { driver: 'external' }>;

/** Returns the addresses of an external engine without trailing slashes, as they are compared and used. */
export function addressesOf({ url, urls }: ExternalFile): string[] {
  const given = urls ?? (url === undefined ? [] : [url]);
  return given.map((one) => one.replace(/\/+$/, ''));
}

/** Checks that exactly one of `url` and `urls` is given, and that no address occurs twice. */
export function externalProblems(engine: EngineFile): FileProblem[] {
  if (engine.driver !== 'external') return [];
  if (engine.url !== undefined && engine.urls !== undefined) {
    return [{ path: ['urls'], message: 'use either url (one address) or urls (several), not both' }];
  }
  const addresses = addressesOf(engine);
  if (addresses.length === 0)
    return [{ path: ['url'], message: 'this field is missing; for several addresses use urls' }];
  const parsed = addresses.map(parsedAddress);
  return parsed.flatMap((one, index) => {
    if (parsed.indexOf(one) === index) return [];
    return [{ path: ['urls', index], message: 'this address is listed twice' }];
  });
}

/** Normalizes an address: lower-case host, no default port, so that all spellings of one server are the same text. */
function parsedAddress(address: string): string {
  const { protocol, username, password, host, pathname, search } = new URL(address);
  return `${protocol}//${username}:${password}@${host.replace(/\.(?=$|:)/, '')}${pathname.replace(/\/+$/, '')}${search}`;
}
