import { execFileSync } from 'node:child_process';
import {
  chmodSync,
  cpSync,
  existsSync,
  globSync,
  mkdirSync,
  mkdtempSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { busybox, findProgram, postgresBin } from '#test/compose.ts';

/**
 * Images that stand where compose.yaml names node, postgres, redis and haproxy, made FROM scratch of this machine's own
 * programs, so that the compose files are tried where no registry can be reached. They keep what the real ones promise
 * to a compose file: the variables, the folders, the programs of the health checks.
 */
export interface BaseImages {
  readonly node: string;
  readonly postgres: string;
  readonly redis: string;
  readonly haproxy: string;
}

const serverBin = postgresBin() ?? '';

/** @param docker runs the Docker client with the given arguments */
export function buildBaseImages(docker: (args: readonly string[], input?: Buffer) => string, tag: string): BaseImages {
  const images = { node: `node:${tag}`, postgres: `postgres:${tag}`, redis: `redis:${tag}`, haproxy: `haproxy:${tag}` };
  buildImage(docker, images.node, nodeRoot, [
    'ENV PATH=/usr/local/bin:/usr/bin:/bin NODE_EXTRA_CA_CERTS=/etc/ssl/certs/ca-certificates.crt',
    'CMD ["node"]',
  ]);
  buildImage(docker, images.postgres, postgresRoot, [
    `ENV PATH=${serverBin}:/usr/bin:/bin PGDATA=/var/lib/postgresql/data PGHOST=/tmp`,
    'VOLUME /var/lib/postgresql',
    'USER 999',
    'ENTRYPOINT ["/entrypoint"]',
  ]);
  buildImage(docker, images.redis, redisRoot, ['ENV PATH=/usr/bin:/bin', 'USER 999', 'CMD ["redis-server"]']);
  buildImage(docker, images.haproxy, haproxyRoot, ['ENV PATH=/usr/sbin:/usr/bin:/bin', 'CMD ["haproxy"]']);
  return images;
}

type Docker = (args: readonly string[], input?: Buffer) => string;

function buildImage(docker: Docker, image: string, fill: (root: string) => void, changes: readonly string[]): void {
  const root = mkdtempSync(join(tmpdir(), 'headgate-image-'));
  try {
    for (const folder of ['bin', 'etc', 'tmp', 'usr/bin', 'var/lib', 'root', 'proc', 'sys', 'dev', 'run']) {
      mkdirSync(join(root, folder), { recursive: true });
    }
    chmodSync(join(root, 'tmp'), 0o1777);
    addProgram(root, busybox, '/bin/busybox');
    const tools = 'sh cat chown chmod date env find head id ls mkdir mv rm sleep sync tail test touch wc'.split(' ');
    for (const tool of tools) symlinkSync('busybox', join(root, 'bin', tool));
    symlinkSync('/bin/env', join(root, 'usr/bin/env'));
    writeFileSync(join(root, 'etc/passwd'), 'root:x:0:0::/root:/bin/sh\nserver:x:999:999::/tmp:/bin/sh\n');
    writeFileSync(join(root, 'etc/group'), 'root:x:0:\nserver:x:999:\n');
    writeFileSync(join(root, 'etc/nsswitch.conf'), 'hosts: files dns\n');
    fill(root);
    const tar = execFileSync('tar', ['-C', root, '-c', '.'], { maxBuffer: 2 ** 31 - 1 });
    docker(['import', ...changes.flatMap((change) => ['--change', change]), '-', image], tar);
  } finally {
    rmSync(root, { recursive: true, force: true });
  }
}

function nodeRoot(root: string): void {
  // The Node that runs this test: the one that the gateway is made for.
  addProgram(root, process.execPath, '/usr/local/bin/node');
  const npm = dirname(
    dirname(
      execFileSync('readlink', ['-f', findProgram('npm', process.env) ?? ''])
        .toString()
        .trim(),
    ),
  );
  copy(root, npm, '/usr/local/lib/node_modules/npm');
  symlinkSync('../lib/node_modules/npm/bin/npm-cli.js', join(root, 'usr/local/bin/npm'));
  // Machines behind a proxy of their own have its certificate here.
  const certificates = '/etc/ssl/certs/ca-certificates.crt';
  if (existsSync(certificates)) copy(root, certificates, certificates);
}

const postgresEntrypoint = `#!/bin/sh
set -e
if [ ! -e "$PGDATA/PG_VERSION" ]; then
  initdb --username="$POSTGRES_USER" --pwfile="$POSTGRES_PASSWORD_FILE" --auth=scram-sha-256 --encoding=UTF8 --no-locale
  echo 'host all all all scram-sha-256' >> "$PGDATA/pg_hba.conf"
  sed -i 's/^\\(local *all *all *\\)scram-sha-256/\\1trust/' "$PGDATA/pg_hba.conf"
  pg_ctl -D "$PGDATA" -o "-c listen_addresses= -k /tmp" -w start
  psql -h /tmp -U "$POSTGRES_USER" -d postgres -c "create database $POSTGRES_DB"
  pg_ctl -D "$PGDATA" -m fast -w stop
fi
# As the real one: the first word of the command is the program.
shift
exec postgres -D "$PGDATA" -k /tmp -c listen_addresses='*' "$@"
`;

function postgresRoot(root: string): void {
  const version = serverBin.split('/')[4] ?? '';
  const programs = 'postgres initdb pg_ctl psql pg_isready pg_dump pg_restore createdb dropdb'.split(' ');
  for (const program of programs) addProgram(root, join(serverBin, program), join(serverBin, program));
  copy(root, `/usr/lib/postgresql/${version}/lib`, `/usr/lib/postgresql/${version}/lib`);
  for (const library of globSync(`/usr/lib/postgresql/${version}/lib/*.so`)) addLibraries(root, library);
  copy(root, `/usr/share/postgresql/${version}`, `/usr/share/postgresql/${version}`);
  if (existsSync('/usr/share/zoneinfo')) copy(root, '/usr/share/zoneinfo', '/usr/share/zoneinfo');
  symlinkSync('busybox', join(root, 'bin/sed'));
  writeFileSync(join(root, 'entrypoint'), postgresEntrypoint, { mode: 0o755 });
  mkdirSync(join(root, 'var/lib/postgresql'), { recursive: true });
  execFileSync('chown', ['-R', '999:999', join(root, 'var/lib/postgresql')]);
}

function redisRoot(root: string): void {
  for (const name of ['redis-server', 'redis-cli']) {
    const path = findProgram(name, process.env);
    if (path !== null) addProgram(root, path, `/usr/bin/${name}`);
  }
  mkdirSync(join(root, 'data'));
}

function haproxyRoot(root: string): void {
  const path = findProgram('haproxy', { PATH: `${process.env['PATH'] ?? ''}:/usr/sbin` });
  if (path !== null) addProgram(root, path, '/usr/sbin/haproxy');
}

function copy(root: string, from: string, to: string): void {
  mkdirSync(dirname(join(root, to)), { recursive: true });
  cpSync(from, join(root, to), { recursive: true, dereference: true });
}

/** A program with the libraries that it is linked to, at the places where its loader looks for them. */
function addProgram(root: string, from: string, to: string): void {
  copy(root, from, to);
  addLibraries(root, from);
}

function addLibraries(root: string, program: string): void {
  let listed = '';
  try {
    listed = execFileSync('ldd', [program], { stdio: ['ignore', 'pipe', 'ignore'] }).toString();
  } catch {
    // Linked statically.
    return;
  }
  for (const [, path] of listed.matchAll(/(?:=> )?(\/\S+) \(0x/g)) {
    if (path !== undefined && !existsSync(join(root, path))) copy(root, path, path);
  }
  for (const name of ['libnss_dns.so.2', 'libnss_files.so.2', 'libresolv.so.2']) {
    const path = `/lib/x86_64-linux-gnu/${name}`;
    if (existsSync(path) && !existsSync(join(root, path))) copy(root, path, path);
  }
}
