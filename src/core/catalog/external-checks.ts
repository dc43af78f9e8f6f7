import type { EngineFile } from './engine-file-schema.ts';
import type { FileProblem } from './zod-problems.ts';

type ExternalFile = Extract<EngineFile, { driver: 'external' }>;

/** The addresses of an external engine, as they are compared and used: without a slash at the end. */
export function addressesOf({ url, urls }: ExternalFile): string[] {
  const given = urls ?? (url === undefined ? [] : [url]);
  return given.map((one) => one.replace(/\/+$/, ''));
}

/** What the fields of an external engine's addresses say together. */
export function externalProblems(engine: EngineFile): FileProblem[] {
  if (engine.driver !== 'external') return [];
  if (engine.url !== undefined && engine.urls !== undefined) {
    return [{ path: ['urls'], message: 'either url, for one address, or urls, for several: not both' }];
  }
  const addresses = addressesOf(engine);
  if (addresses.length === 0) return [{ path: ['url'], message: 'this field is missing; for several addresses: urls' }];
  return addresses.flatMap((one, index) => {
    if (addresses.indexOf(one) === index) return [];
    return [{ path: ['urls', index], message: 'this address stands there twice' }];
  });
}
