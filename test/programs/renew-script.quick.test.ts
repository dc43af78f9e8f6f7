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

function renew(): { status: number | null; stdout: string; stderr: string; stopped: string[] } {
  const env = { PATH: [join(folder, 'bin'), process.env['PATH']].join(delimiter), STANDIN: folder };
  const { status, stdout, stderr } = spawnSync('sh', [script, '-f', 'one.yaml', '-f', 'two.yaml'], {
    env,
    encoding: 'utf8',
  });
  const calls = readFileSync(join(folder, 'calls'), 'utf8').split('\n');
  return { status, stdout, stderr, stopped: calls.filter((call) => call.startsWith('stop ')) };
}

describe('renew.sh', () => {
  it('renews all gateways, each within its own stop_grace_period', () => {
    have({ old1: true, old2: true, old3: true });
    expect(renew()).toMatchObject({ status: 0, stopped: ['stop old1', 'stop old2', 'stop old3'] });
    expect(containers()).toEqual(['new1', 'new2', 'new3']);
  });

  it('makes the gateway that is missing when a renewal that failed is repeated', () => {
    have({ old1: true, old2: true, old3: true });
    // As where a file of a secret is missing: Compose makes no container, once one was removed.
    writeFileSync(join(folder, 'fails-without-old1'), '');
    expect(renew()).toMatchObject({ status: 1, stopped: ['stop old1'] });
    expect(containers()).toEqual(['old2', 'old3']);
    rmSync(join(folder, 'fails-without-old1'));
    expect(renew()).toMatchObject({ status: 0 });
    expect(containers()).toEqual(['new2', 'new3', 'new4']);
  });

  it('renews a gateway that takes no requests before those that do, and names the new ones that it waits for', () => {
    have({ old1: true, old2: false, old3: true });
    const { stopped, stdout } = renew();
    expect(stopped).toEqual(['stop old2', 'stop old1', 'stop old3']);
    expect(stdout).toContain('docker logs new1');
  });

  it('refuses where no gateway of the files runs', () => {
    const { status, stderr } = renew();
    expect(status).toBe(1);
    expect(stderr).toContain('No gateway of these files runs');
    expect(containers()).toEqual([]);
  });
});
