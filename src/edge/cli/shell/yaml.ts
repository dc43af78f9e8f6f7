import { createRequire } from 'node:module';
import type Yaml from 'yaml';

const require = createRequire(import.meta.url);

/** Loads yaml when a command first needs it: loading takes an eighth of each start of the command. */
export function loadYaml(): typeof Yaml {
  return require('yaml') as typeof Yaml;
}
