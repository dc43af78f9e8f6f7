import dns from 'node:dns';
import { existsSync } from 'node:fs';

// Given to a gateway with --import: one host name that resolves to the loopback, or, while a file is there, fails as
// getaddrinfo does when no name server answers.

type Done = (error: Error | null, address?: unknown, family?: number) => void;
type Lookup = (host: string, options: { readonly all?: boolean }, done: Done) => void;

const name = process.env['CHAOS_NAME'] ?? '';
const failing = process.env['CHAOS_NAME_FAILS'] ?? '';
const lookup = dns.lookup as Lookup;

const answer = (host: string, isAll: boolean, done: Done): void => {
  if (existsSync(failing)) {
    const fields = { errno: -3001, code: 'EAI_AGAIN', syscall: 'getaddrinfo', hostname: host };
    done(Object.assign(new Error(`getaddrinfo EAI_AGAIN ${host}`), fields));
  } else if (isAll) done(null, [{ address: '127.0.0.1', family: 4 }]);
  else done(null, '127.0.0.1', 4);
};

const replaced: Lookup = (host, options, done) => {
  if (host === name) process.nextTick(answer, host, options.all === true, done);
  else lookup(host, options, done);
};

// Sockets ask for it by this name each time.
Object.assign(dns, { lookup: replaced });
