import { isRequestOverride } from '#core/catalog/catalog.ts';
import { noteKeys } from './keys.ts';
import { filterKeys } from './llama-swap-keys.ts';

/**
 * Returns llama-swap's filters of requests as `overrides`: parameters to strip become null, parameters to set keep their
 * value.
 * @param add called with a note for each parameter that an engine file cannot set
 */
export function overridesOf(filters: unknown, add: (text: string) => void): { overrides?: Record<string, unknown> } {
  if (typeof filters !== 'object' || filters === null) return {};
  noteKeys(filters, filterKeys, (text) => add(`filters: ${text}`));
  const read = (key: string): unknown => Object.getOwnPropertyDescriptor(filters, key)?.value;
  const stripped = [read('stripParams'), read('strip_params')]
    .flatMap((list) => (typeof list === 'string' ? list.split(',') : []))
    .map((name): [string, unknown] => [name.trim(), null])
    .filter(([name]) => name !== '');
  const set = Object.entries(Object(read('setParams')) as Record<string, unknown>);
  const wanted = [...new Map([...stripped, ...set])];
  for (const [name] of wanted.filter(([field, value]) => !isRequestOverride(field, value))) {
    add(`filters: ${name}: not imported; overrides of an engine file cannot set it to this value`);
  }
  const overrides = Object.fromEntries(wanted.filter(([field, value]) => isRequestOverride(field, value)));
  return Object.keys(overrides).length === 0 ? {} : { overrides };
}
