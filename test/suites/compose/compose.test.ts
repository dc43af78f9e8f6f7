import { chmodSync, chownSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { chapterLines } from '#test/chapter-lines.ts';
import { containerEngine } from './container-engine.ts';
import { oddGroup, readmeBlocks, startStack, type Stack } from './stack.ts';

interface Container {
  readonly Id: string;
  readonly Labels: Readonly<Record<string, string>>;
  readonly Ports: readonly object[];
}

let stack: Stack;
let firstAnswer = '';
beforeAll(async () => {
  stack = await startStack({ 'container-chat.yaml': containerEngine() });
  firstAnswer = await stack.shell(stack.quickStart);
}, 600_000);
afterAll(() => stack?.stop());

async function containers(label: string): Promise<readonly Container[]> {
  const filters = encodeURIComponent(JSON.stringify({ label: [label] }));
  return (await stack.docker.call('GET', `/containers/json?filters=${filters}`)) as Container[];
}

async function serviceId(service: string): Promise<string> {
  const [found] = await containers(`com.docker.compose.service=${service}`);
  if (found === undefined) throw new Error(`The service ${service} does not run.`);
  return found.Id;
}

async function chat(model: string): Promise<{ status: number; text: string; requestId: string }> {
  const messages = [{ role: 'user', content: 'Hello' }];
  const answer = await stack.ask('/v1/chat/completions', { model, messages, max_tokens: 8 });
  return { status: answer.status, text: await answer.text(), requestId: answer.headers.get('x-request-id') ?? '' };
}

async function balance(): Promise<string> {
  const wallet = (await (await stack.ask('/v1/wallet')).json()) as { balance: string };
  return wallet.balance;
}

/** Runs a program of Node's inside the gateway's container; what it prints. */
function inGateway(script: string): Promise<string> {
  return stack.compose('exec', '-T', 'gateway', 'node', '-e', script);
}

const callGate = (path: string, body: object): Promise<string> =>
  inGateway(`
    fetch('http://docker-gate:2375${path}', {method: 'POST', headers: {'content-type': 'application/json'},
      body: ${JSON.stringify(JSON.stringify(body))}}).then(async (answer) => console.log(answer.status, await answer.text()))`);

describe('the compose files on a real Docker engine', () => {
  it('reject a privileged container from the gateway', async () => {
    const body = {
      Image: 'headgate:headgate-test',
      Labels: { 'headgate.managed': 'true' },
      HostConfig: { Privileged: true },
    };
    expect(await callGate('/containers/create?name=headgate-x', body)).toMatch(/^403 /);
  });

  it('reject access of the gateway to other containers', async () => {
    expect(await callGate(`/containers/${await serviceId('postgres')}/stop`, {})).toMatch(/^403 /);
    expect(await callGate('/containers/none/stop', {})).toMatch(/^404 /);
  });

  it('run the gateway without root, with read-only files', async () => {
    const printed = await inGateway(`
      const write = () => { try { require('fs').writeFileSync('/app/src/x', ''); return 'written'; } catch ({code}) { return code; } };
      console.log(process.getuid(), write())`);
    expect(printed).toContain('10001 EROFS');
  });

  it('answer a chat request by a process of the gateway', async () => {
    expect(await chat('standin-chat')).toMatchObject({ status: 200 });
  });

  it('answer a chat request by a container without published ports, and bill it', async () => {
    const { status, text, requestId } = await chat('container-chat');
    expect(text).toContain('"usage"');
    expect(status).toBe(200);
    // On a slow machine it may be booked from the spool.
    const record = async (): Promise<unknown> => (await stack.ask(`/v1/usage/requests/${requestId}`)).json();
    await expect.poll(record).toMatchObject({ model: 'container-chat', status: 200 });
    const [engine, ...more] = await containers('headgate.engine=container-chat');
    expect(more).toEqual([]);
    expect(JSON.stringify(engine?.Ports)).not.toContain('PublicPort');
  });

  it('reuse the engine after a restart of the gateway', async () => {
    const before = await containers('headgate.engine=container-chat');
    await stack.compose('restart', 'gateway');
    await stack.ready();
    expect(await chat('container-chat')).toMatchObject({ status: 200 });
    const after = await containers('headgate.engine=container-chat');
    expect(after.map(({ Id: id }) => id)).toEqual(before.map(({ Id: id }) => id));
  });

  it('answer the commands of the quick start as pasted', async () => {
    expect(firstAnswer).toContain('"chat.completion"');
    const [lines = ''] = readmeBlocks(stack.folder, 'Engines');
    const printed = await stack.shell(lines);
    expect(printed).toContain('container-chat');
    expect(printed).toContain('standin-chat');
  });

  it('hide secrets from users who can inspect containers', async () => {
    const folder = join(stack.folder, 'compose/secrets');
    const secrets = readdirSync(folder).map((name) => readFileSync(join(folder, name), 'utf8').trim());
    expect(secrets.filter((secret) => secret.length > 20)).toHaveLength(3);
    const all = await containers('com.docker.compose.project=headgate');
    expect(all).toHaveLength(5);
    const shown = await Promise.all(
      all.map(async ({ Id: id, Labels: labels }) => {
        const inspected = JSON.stringify(await stack.docker.call('GET', `/containers/${id}/json`));
        const service = labels['com.docker.compose.service'] ?? '';
        return inspected + (await stack.compose('exec', '-T', service, 'env'));
      }),
    );
    for (const secret of secrets) expect(shown.filter((text) => text.includes(secret))).toEqual([]);
    expect(shown.join()).toContain('postgres_password');
    expect(await stack.compose('logs')).not.toMatch(new RegExp(secrets.join('|')));
  });

  it('limit the log, the memory, the CPU and the processes of every service', async () => {
    for (const { Id: id } of await containers('com.docker.compose.project=headgate')) {
      const { HostConfig: config } = (await stack.docker.call('GET', `/containers/${id}/json`)) as Inspected;
      expect(config.LogConfig).toEqual({ Type: 'json-file', Config: { 'max-size': '10m', 'max-file': '5' } });
      expect(Math.min(config.Memory, config.CpuQuota, config.PidsLimit)).toBeGreaterThan(0);
    }
  });

  it("expose the engines' own metrics with labels on the metrics port", async () => {
    expect(await chat('container-chat')).toMatchObject({ status: 200 });
    const text = await inGateway(
      `fetch('http://127.0.0.1:9464/metrics/engines').then((answer) => answer.text()).then(console.log)`,
    );
    expect(text).toMatch(/^vllm:num_requests_running\{model="container-chat",replica="[\w-]+",host="local",/m);
    expect(text).toMatch(/^headgate_replica_metrics_up\{model="container-chat",replica="[\w-]+",host="local"\} 1$/m);
  });
});

describe.concurrent('the services of the compose files', () => {
  it('open the Docker socket by its group, keep no root rights, and say what to do when that fails', async ({
    expect,
  }) => {
    expect(await gateStatus()).toEqual({ user: '10001', groups: String(oddGroup), capabilities: [] });
    chownSync(stack.docker.socketPath, 0, 0);
    chmodSync(stack.docker.socketPath, 0o660);
    await stack.compose('restart', '--timeout', '5', 'docker-gate');
    await expect.poll(() => gateHealth()).toMatchObject({ Status: 'healthy' });
    expect(await gateStatus()).toEqual({ user: '10001', groups: '0', capabilities: [] });

    chmodSync(stack.docker.socketPath, 0o600);
    await stack.compose('restart', '--timeout', '5', 'docker-gate');
    const sentence = /cannot be opened.*let its group read and write it \(chmod g\+rw/;
    await expect.poll(async () => (await gateHealth()).Log.at(-1)?.Output).toMatch(sentence);
    // A check of before the restart may have said so already.
    await expect.poll(() => stack.compose('logs', 'docker-gate')).toMatch(sentence);
    chmodSync(stack.docker.socketPath, 0o660);
    await expect.poll(() => gateHealth()).toMatchObject({ Status: 'healthy' });
  });

  it('serve requests when Redis is full, and report it', async ({ expect }) => {
    await stack.compose('exec', '-T', 'redis', 'redis-cli', 'config', 'set', 'maxmemory', '1');
    expect(await chat('standin-chat')).toMatchObject({ status: 200 });
    expect(await stack.compose('logs', 'gateway')).toMatch(/OOM.*Redis rejects commands.*REDIS_MAXMEMORY/);
    const readMetrics = async (): Promise<string> => {
      await chat('standin-chat');
      return inGateway(`fetch('http://127.0.0.1:9464/metrics').then((answer) => answer.text()).then(console.log)`);
    };
    await expect.poll(readMetrics).toContain('headgate_store_up{store="redis"} 0');
    await stack.compose('exec', '-T', 'redis', 'redis-cli', 'config', 'set', 'maxmemory', '512mb');
    expect(await chat('standin-chat')).toMatchObject({ status: 200 });
  });

  it('report an outdated backup, create backups automatically, and remove old ones', async ({ expect }) => {
    const inBackup = (line: string): Promise<string> => stack.compose('exec', '-T', 'backup', 'sh', '-c', line);
    const listed = async (): Promise<string[]> => (await inBackup('ls /backups')).match(/headgate-\S+\.dump/g) ?? [];
    await expect.poll(listed).toHaveLength(1);
    const [first = ''] = await listed();
    // Not of the database before the gateway had filled it.
    expect(await inBackup(`pg_restore --list /backups/${first}`)).toContain('TABLE DATA public wallets');
    const health = 'sh /headgate/backup.sh health';
    // In one, as a new one may be made at any moment after.
    await expect(inBackup(`touch -d 2020-01-01 /backups/${first}; ${health}`)).rejects.toThrow(
      /is \d+ hours old: docker compose logs/,
    );
    await expect.poll(listed).not.toContain(first);
    expect(await listed()).toHaveLength(1);
    expect(await inBackup(health)).toContain('0 hours old');
    await expect(inBackup('sh /headgate/backup.sh restore latest')).rejects.toThrow('is not empty');
    await expect(inBackup('BACKUP_HOUR=24 sh /headgate/backup.sh now')).rejects.toThrow('BACKUP_HOUR: must be');
  });
});

describe('the backups of the compose files', () => {
  it('restore balances and keys by the commands of the chapters', async () => {
    const kept = await newKey();
    await chat('standin-chat');
    const before = await balance();
    const [backup = ''] = readmeBlocks(stack.folder, 'Backups');
    const restore = restoreLines();
    await stack.shell(backup);
    const lost = await newKey();
    await chat('standin-chat');
    expect(await balance()).not.toBe(before);
    await stack.shell(restore);
    await stack.ready();
    expect(await balance()).toBe(before);
    expect(await chat('standin-chat')).toMatchObject({ status: 200 });
    expect([await statusOf(kept), await statusOf(lost)]).toEqual([200, 401]);
  });

  it('leave the database unchanged when a restore fails, and start no gateway', async () => {
    const restore = restoreLines();
    const inBackup = (lines: string): Promise<string> =>
      stack.compose(
        'exec',
        '-T',
        'backup',
        'sh',
        '-euc',
        `export PGPASSWORD=$(cat /run/secrets/postgres_password)\n${lines}`,
      );
    // Beside those of this installation one of another, and one that is cut off.
    await inBackup(`
      sh /headgate/backup.sh now
      mv "$(ls /backups/headgate-[0-9]*.dump | tail -n 1)" /backups/headgate-2026-01-01T000000Z.dump
      createdb other && sh /headgate/backup.sh restore headgate-2026-01-01T000000Z.dump other
      psql --dbname=other --command="update fleet_secrets set secret = repeat('b', 64)"
      PGDATABASE=other sh /headgate/backup.sh now
      head -c -1000 "$(ls /backups/headgate-[0-9]*.dump | tail -n 1)" > /backups/headgate-cut.dump`);
    const made = await newKey();
    for (const [name, sentence] of [
      ['latest', 'dumps of several installations'],
      ['headgate-cut.dump', 'is not whole. Nothing was changed'],
    ] as const) {
      expect(await stack.type(restore.replace('latest', name))).toContain(sentence);
      expect(await containers('com.docker.compose.service=gateway')).toEqual([]);
    }
    await stack.compose('start', 'gateway');
    await stack.ready();
    expect(await statusOf(made)).toBe(200);
    await inBackup('rm "$(ls /backups/headgate-[0-9]*.dump | tail -n 1)" /backups/headgate-cut.dump; dropdb other');
  });

  it('restore the state before an upgrade by the commands of the chapter', async () => {
    const chapter = join(stack.folder, 'compose/upgrade.md');
    const [keep = ''] = chapterLines(chapter, 'Upgrade');
    const [goBack = ''] = chapterLines(chapter, 'Go back');
    const commit = `git add package.json && git -c user.name=me -c user.email=me@example.org commit -qm`;
    await stack.shell(`git init -q && ${commit} older`);
    const kept = await newKey();
    await stack.shell(keep);
    const lost = await newKey();
    const older = readFileSync(join(stack.folder, 'package.json'), 'utf8');
    await stack.shell(`echo >> package.json && ${commit} newer`);
    await stack.shell(goBack);
    await stack.ready();
    expect([await statusOf(kept), await statusOf(lost)]).toEqual([200, 401]);
    expect(readFileSync(join(stack.folder, 'package.json'), 'utf8')).toBe(older);
  });
});

function restoreLines(): string {
  const [lines = ''] = chapterLines(join(stack.folder, 'compose/restore.md'), 'Restore on the same machine');
  return lines;
}

async function newKey(): Promise<string> {
  const { secret } = (await (await stack.ask('/v1/keys', { name: 'one' })).json()) as { secret: string };
  return secret;
}

/** The gateway's status for a client with this key. */
async function statusOf(key: string): Promise<number> {
  return (await fetch(`${stack.url}/v1/models`, { headers: { authorization: `Bearer ${key}` } })).status;
}

interface Inspected {
  readonly HostConfig: {
    readonly LogConfig: object;
    readonly Memory: number;
    readonly CpuQuota: number;
    readonly PidsLimit: number;
  };
  readonly State: {
    readonly Health: { readonly Status: string; readonly Log: readonly { readonly Output: string }[] };
  };
}

async function gateHealth(): Promise<Inspected['State']['Health']> {
  const { State: state } = (await stack.docker.call(
    'GET',
    `/containers/${await serviceId('docker-gate')}/json`,
  )) as Inspected;
  return state.Health;
}

/** The gate's user and rights, as the kernel has them. */
async function gateStatus(): Promise<{ user: string; groups: string; capabilities: string[] }> {
  const status = await stack.compose('exec', '-T', 'docker-gate', 'cat', '/proc/1/status');
  const line = (name: string): string => new RegExp(`^${name}:\\s*(.*?)\\s*$`, 'm').exec(status)?.[1] ?? '';
  const held = ['CapInh', 'CapPrm', 'CapEff', 'CapAmb'].filter((name) => !/^0+$/.test(line(name)));
  const users = new Set(line('Uid').split(/\s+/));
  return { user: [...users].join(), groups: line('Groups'), capabilities: held };
}
