import { createRequire } from 'node:module';
import type Ssh2 from 'ssh2';

const require = createRequire(import.meta.url);

/** Loads ssh2 when it is first used: most gateways open no SSH connection, and loading takes time at each start. */
export function loadSsh2(): typeof Ssh2 {
  return require('ssh2') as typeof Ssh2;
}
