import { looksSecret, namesSecret } from '#core/catalog/catalog.ts';
import type { Notes } from './draft.ts';
import { environmentMacro } from './llama-swap-config.ts';

/** Environment variables of other programs' configurations. Secrets in them are never written to a file. */

export interface VariableNotes {
  readonly model: string;
  readonly notes: Notes;
}

/**
 * Reads `NAME=value`, or only `NAME` for a variable that is passed on.
 * @returns the value for the engine file, with references for secrets; null if the entry has no valid name
 */
export function readVariable(entry: string, { model, notes }: VariableNotes): { name: string; value: string } | null {
  const equals = entry.indexOf('=');
  const name = equals === -1 ? entry : entry.slice(0, equals);
  if (!/^[A-Za-z_][A-Za-z0-9_]*$/.test(name)) {
    notes.add(model, 'a variable of its environment was not imported, because the name of the variable is invalid');
    return null;
  }
  if (equals === -1) return { name, value: `\${${name}}` };
  const value = entry.slice(equals + 1).replace(environmentMacro, (_, other: string) => `\${${other}}`);
  const isReference = /\$\{[A-Za-z_][A-Za-z0-9_]*\}/.test(value);
  if (value === '' || isReference || !(namesSecret(name) || looksSecret(value))) return { name, value };
  notes.add(
    model,
    `the value of ${name} may be a secret and was not written to the file: set ${name} in the gateway's environment`,
  );
  return { name, value: `\${${name}}` };
}
