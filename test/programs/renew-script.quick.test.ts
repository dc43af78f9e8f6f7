import { spawnSync } from 'node:child_process';
import { chmodSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';

const script = new URL('../../compose/renew.sh', import.meta.url).pathname;

/**
 * Stands in for docker and docker compose: a container is a file, which holds "ready" where it takes requests. `up` makes
 * what is missing of three gateways, and fails where there is a file "fails-without-old1" and no old1.
 */
const docker = `#!/bin/sh
cd "$STANDIN" && echo "$*" >> calls
case "$*" in
  *' ps -q gateway') ls containers ;;
  *' up '*)
    [ ! -e fails-without-old1 ] || [ -e containers/old1 ] || exit 1
    while [ "$(ls containers | wc -l)" -lt 3 ]; do
      echo made >> made
      echo new > containers/new$(wc -l < made)
    done ;;
  'rm '*) rm "containers/$2" ;;
  'inspect '*) cat config_files ;;
  'exec '*)
    grep -q ready "containers/$2" && exit 0
    # A new one is ready when it is asked for the second time.
    case $2 in new*) echo ready > "containers/$2" ;; esac
    exit 1 ;;
esac
`;

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'hg-renew-'));
  mkdirSync(join(folder, 'containers'));
  mkdirSync(join(folder, 'bin'));
  startedWith('/srv/headgate/compose/one.yaml', '/srv/headgate/compose/two.yaml');
  for (const [name, text] of [
    ['docker', docker],
    ['sleep', '#!/bin/sh\n'],
  ] as const) {
    writeFileSync(join(folder, 'bin', name), text);
    chmodSync(join(folder, 'bin', name), 0o755);
  }
});
afterEach(() => rmSync(folder, { recursive: true }));

const containers = (): string[] => readdirSync(join(folder, 'containers')).toSorted();

/** Containers by name, with whether each takes requests. */
function have(gateways: Readonly<Record<string, boolean>>): void {
  for (const [name, isReady] of Object.entries(gateways)) {
    writeFileSync(join(folder, 'containers', name), isReady ? 'ready' : 'starting');
  }
}

/** The files that Compose noted on each gateway. */
const startedWith = (...paths: readonly string[]): void =>
  writeFileSync(join(folder, 'config_files'), `${paths.join()}\n`);

interface Renewal {
  readonly status: number | null;
  readonly stdout: string;
  readonly stderr: string;
  /** Calls on containers. */
  readonly stopped: readonly string[];
  readonly made: readonly string[];
}

function renew(line = '-f one.yaml -f two.yaml', settings: Readonly<Record<string, string>> = {}): Renewal {
  const env = { PATH: [join(folder, 'bin'), process.env['PATH']].join(delimiter), STANDIN: folder, ...settings };
  const { status, stdout, stderr } = spawnSync('sh', ['-c', `sh ${script} ${line}`], { env, encoding: 'utf8' });
  const calls = readFileSync(join(folder, 'calls'), 'utf8').split('\n');
  const having = (word: string): string[] => calls.filter((call) => ` ${call} `.includes(` ${word} `));
  return { status, stdout, stderr, stopped: having('stop'), made: having('up') };
}

describe('renew.sh', () => {
  it('renews all gateways, each within its own stop_grace_period', () => {
    have({ old1: true, old2: true, old3: true });
    expect(renew()).toMatchObject({ status: 0, stopped: ['stop old1', 'stop old2', 'stop old3'] });
    expect(containers()).toEqual(['new1', 'new2', 'new3']);
  });

  it('creates the missing gateway when a failed renewal is repeated', () => {
    have({ old1: true, old2: true, old3: true });
    // As where a file of a secret is missing: Compose makes no container, once one was removed.
    writeFileSync(join(folder, 'fails-without-old1'), '');
    expect(renew()).toMatchObject({ status: 1, stopped: ['stop old1'] });
    expect(containers()).toEqual(['old2', 'old3']);
    rmSync(join(folder, 'fails-without-old1'));
    expect(renew()).toMatchObject({ status: 0 });
    expect(containers()).toEqual(['new2', 'new3', 'new4']);
  });

  it('renews a gateway that is not ready first, and names the new ones that it waits for', () => {
    have({ old1: true, old2: false, old3: true });
    const { stopped, stdout } = renew();
    expect(stopped).toEqual(['stop old2', 'stop old1', 'stop old3']);
    expect(stdout).toContain('docker logs new1');
  });

  it('fails when no gateway of the files runs', () => {
    const { status, stderr } = renew();
    expect(status).toBe(1);
    expect(stderr).toContain('No gateway of these files runs');
    expect(containers()).toEqual([]);
  });

  it.for([
    ['-f compose/compose.yaml -f compose/compose.gateways.yaml', {}],
    ['', { COMPOSE_FILE: 'compose/compose.yaml:compose/compose.gateways.yaml' }],
    ['', { COMPOSE_FILE: 'compose/compose.yaml;compose/compose.gateways.yaml', COMPOSE_PATH_SEPARATOR: ';' }],
  ] as const)(
    'rejects "%s" with %o when the gateways were started with more files, and names them',
    ([line, settings]) => {
      have({ old1: true, old2: true, old3: true });
      startedWith(
        '/srv/headgate/compose/compose.yaml',
        '/srv/headgate/compose/compose.gpu.yaml',
        '/srv/headgate/compose/compose.gateways.yaml',
        '/etc/headgate/own.yaml',
      );
      const { status, stderr, stopped, made } = renew(line, settings);
      expect({ status, stopped, made }).toEqual({ status: 1, stopped: [], made: [] });
      const files = ['compose.yaml', 'compose.gpu.yaml', 'compose.gateways.yaml'].map(
        (file) => `/srv/headgate/compose/${file}`,
      );
      const all = [...files, '/etc/headgate/own.yaml'];
      expect(stderr).toContain('A file is missing or not in its place: /srv/headgate/compose/compose.gpu.yaml.');
      expect(stderr).toContain(`in this order: ${all.join(' ')}\n`);
      expect(renew(all.map((file) => `-f ${file}`).join(' '))).toMatchObject({ status: 0 });
    },
  );

  it('reads files in every form that Compose accepts, and ignores other arguments', () => {
    have({ old1: true });
    startedWith('/srv/headgate/compose/one.yaml', '/srv/headgate/compose/two.yaml');
    const line = '--env-file compose/.env --file=compose/one.yaml --file two.yaml -p headgate';
    expect(renew(line)).toMatchObject({ status: 0 });
    expect(renew('--env-file two.yaml.env -f one.yaml -p two')).toMatchObject({ status: 1 });
  });

  it.for([
    ['is the value of another argument', '-f one.yaml -p two.yaml'],
    ['is the value of --env-file=', '--env-file=two.yaml -f one.yaml'],
    ['is the value of --env-file', '--env-file two.yaml -f one.yaml'],
    ['is a part of another path', "-f one.yaml -f 'with two.yaml and/more.yaml'"],
    ['is named twice instead of another one', '-f two.yaml -f two.yaml'],
    ['is out of order', '-f two.yaml -f one.yaml'],
  ])('rejects files when the name of one %s', ([, line]) => {
    have({ old1: true });
    const { status, stderr, stopped } = renew(line);
    expect({ status, stopped }).toEqual({ status: 1, stopped: [] });
    expect(stderr).toContain('in this order: /srv/headgate/compose/one.yaml /srv/headgate/compose/two.yaml\n');
  });

  it('rejects one file for two files of the same name', () => {
    have({ old1: true });
    startedWith('/srv/headgate/compose.yaml', '/etc/headgate/compose.yaml');
    expect(renew('-f compose.yaml')).toMatchObject({ status: 1, stopped: [] });
    expect(renew('-f compose.yaml -f /etc/headgate/compose.yaml')).toMatchObject({ status: 0 });
  });

  it('renews when the folder of the files has a blank, and when no files are named', () => {
    have({ old1: true, old2: true, old3: true });
    startedWith('/srv/my gate/compose/one.yaml', '/srv/my gate/compose/two.yaml');
    expect(renew()).toMatchObject({ status: 0 });
    expect(renew('-f one.yaml')).toMatchObject({ status: 1 });
    expect(renew('-fone.yaml -f two.yaml')).toMatchObject({ status: 0 });
    expect(renew('', { COMPOSE_FILE: '/srv/my gate/compose/one.yaml:two.yaml' })).toMatchObject({ status: 0 });
    expect(renew('')).toMatchObject({ status: 0 });
  });

  it('renews when the paths of the files have commas', () => {
    have({ old1: true, old2: true, old3: true });
    startedWith('/srv/gate,eu/compose/one.yaml', '/srv/gate,eu/compose/two,more.yaml');
    expect(renew('-f one.yaml -f two,more.yaml')).toMatchObject({ status: 0 });
    const { status, stderr } = renew('-f one.yaml');
    expect(status).toBe(1);
    expect(stderr).toContain('A file is missing or not in its place: /srv/gate,eu/compose/two,more.yaml.');
  });

  it('compares relative paths too, which docker-compose 1 notes', () => {
    have({ old1: true, old2: true, old3: true });
    startedWith('compose/one.yaml', 'compose/two.yaml');
    const { status, stderr, stopped } = renew('-f compose/one.yaml');
    expect({ status, stopped }).toEqual({ status: 1, stopped: [] });
    expect(stderr).toContain('A file is missing or not in its place: compose/two.yaml.');
    expect(renew('-f compose/one.yaml -f compose/two.yaml')).toMatchObject({ status: 0 });
  });

  it('renews with the files of a moved clone, and with an additional file', () => {
    have({ old1: true, old2: true, old3: true });
    startedWith('/srv/before/compose/one.yaml', '/srv/before/compose/two.yaml');
    expect(renew('-f /srv/after/compose/one.yaml -f /srv/after/compose/two.yaml -f own.yaml')).toMatchObject({
      status: 0,
      stopped: ['stop old1', 'stop old2', 'stop old3'],
    });
  });
});
