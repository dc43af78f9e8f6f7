import { once } from 'node:events';
import { chmodSync, existsSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { type AddressInfo, createServer as createTcpServer } from 'node:net';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { connectDb } from '#base/database/connect-database.ts';
import { createLog } from '#base/log.ts';
import { createSecrets } from '#core/secrets/secrets.ts';
import { withServer } from '#test/database.ts';
import { runCli, useFolders } from '#test/cli/run-cli.ts';
import { externalFile } from '#test/inference/inference-gateway.ts';
import { engineFile, givenKey, useProcesses } from '#test/programs/gateway-process.ts';

const processes = useProcesses();
const folders = useFolders();

interface Finding {
  readonly name: string;
  readonly state: 'ok' | 'note' | 'wrong';
  readonly message: string;
  readonly next?: string;
}

/** The doctor's findings, by subject. */
async function examine(env: Record<string, string>) {
  const { code, stdout } = await runCli(['doctor', '--json'], { env });
  const { healthy, checks } = JSON.parse(stdout) as { healthy: boolean; checks: Finding[] };
  const wrong = checks.filter(({ state }) => state === 'wrong');
  expect([code, healthy]).toEqual(wrong.length === 0 ? [0, true] : [1, false]);
  // Every problem comes with a fix.
  expect(wrong.every(({ next }) => (next ?? '') !== '')).toBe(true);
  return { stdout, wrong: Object.fromEntries(wrong.map(({ name, message }) => [name, message])), checks };
}

describe('headgate doctor', () => {
  it('names each problem, and prints no secret', async () => {
    const enginesDir = folders();
    writeFileSync(join(enginesDir, 'a.yaml'), engineFile('a').replace('driver: process', 'driver: hamster'));
    const dataDir = folders();
    writeFileSync(join(dataDir, 'platform.key'), 'not a key\n');
    chmodSync(join(dataDir, 'platform.key'), 0o600);
    const found = await examine({
      DATABASE_URL: 'postgres://u:hidden@127.0.0.1:1/x',
      REDIS_URL: 'redis://:hidden@127.0.0.1:1',
      HEADGATE_DATA_DIR: dataDir,
      HEADGATE_ENGINES_DIR: enginesDir,
      HEADGATE_TERRAFORM_BIN: '/nonexistent/tofu',
    });
    expect(found.wrong).toEqual({
      postgresql: expect.stringContaining('DATABASE_URL: the database cannot be used'),
      redis: expect.stringContaining('REDIS_URL: Redis cannot be used'),
      'engine files': expect.stringContaining('a.yaml:'),
      terraform: expect.stringContaining('/nonexistent/tofu, which is not a program on this machine'),
      'platform key': expect.stringContaining('platform.key must contain one key'),
    });
    expect(found.stdout).not.toContain('hidden');
  });

  it('says that disk space is missing where PostgreSQL accepts no connection for the lack of it', async () => {
    const said = 'could not write init file: No space left on device';
    const fields = Buffer.from(`SFATAL\0VFATAL\0C53100\0M${said}\0\0`);
    const head = Buffer.from('E----');
    head.writeInt32BE(fields.length + 4, 1);
    const server = createTcpServer((socket) => {
      socket.on('error', () => undefined).once('data', () => socket.end(Buffer.concat([head, fields])));
    }).listen(0, '127.0.0.1');
    await once(server, 'listening');
    const { checks } = await examine({
      DATABASE_URL: `postgres://u:x@127.0.0.1:${(server.address() as AddressInfo).port}/x`,
      HEADGATE_DATA_DIR: processes.home().dataDir,
      HEADGATE_ENGINES_DIR: folders(),
    });
    expect(checks.find(({ name }) => name === 'postgresql')).toEqual({
      name: 'postgresql',
      state: 'wrong',
      message: `DATABASE_URL: the database cannot be used (${said})`,
      next: 'free disk space where PostgreSQL keeps its data',
    });
    server.close();
  });

  it('reports engines whose program or Docker engine is missing', async () => {
    const enginesDir = folders();
    const process = engineFile('a').replace(/command: .*/, 'command: ["no-such-vllm", "--uds", "{socket}"]');
    writeFileSync(join(enginesDir, 'a.yaml'), process);
    const container = engineFile('b')
      .replace('driver: process', 'driver: docker\nimage: vllm/vllm-openai:v0.32.0')
      .replace(/command: .*/, 'args: ["--model", "x"]');
    writeFileSync(join(enginesDir, 'b.yaml'), container);
    const env = { HEADGATE_ENGINES_DIR: enginesDir, DOCKER_HOST: 'unix:///nonexistent/docker.sock' };
    const { wrong } = await examine({ ...env, HEADGATE_DATA_DIR: processes.home().dataDir });
    expect(wrong).toEqual({
      'engine files': 'a: its program no-such-vllm is not on the PATH',
      docker: expect.stringMatching(/^local: the Docker engine cannot be used \(.*ENOENT/),
    });
  });

  it('reports a Docker engine without the NVIDIA runtime for engines that need GPUs', async () => {
    const [enginesDir, socket] = [folders(), join(folders(), 'docker.sock')];
    let runtimes: object = { runc: {} };
    let devices: object[] = [];
    const docker = createServer((_, response) => {
      response.setHeader('content-type', 'application/json');
      response.end(JSON.stringify({ ID: 'AAAA:BBBB:CCCC', Runtimes: runtimes, DiscoveredDevices: devices }));
    }).listen(socket);
    await new Promise((resolve) => docker.once('listening', resolve));
    const container = engineFile('big')
      .replace('driver: process', 'driver: docker\nimage: vllm/vllm-openai:v0.32.0\ngpus:\n  count: 1')
      .replace(/command: .*/, 'args: ["--model", "x"]');
    writeFileSync(join(enginesDir, 'big.yaml'), container);
    const env = { HEADGATE_ENGINES_DIR: enginesDir, DOCKER_HOST: `unix://${socket}` };
    const look = async () => {
      const { checks } = await examine({ ...env, HEADGATE_DATA_DIR: processes.home().dataDir });
      return checks.find(({ name }) => name === 'docker');
    };
    expect(await look()).toMatchObject({
      state: 'note',
      message: expect.stringMatching(/^local: answers \(AAAA:BBBB:CC\); big need GPUs$/),
      next: expect.stringContaining('NVIDIA Container Toolkit'),
    });
    runtimes = { runc: {}, nvidia: {} };
    expect(await look()).toMatchObject({ state: 'ok', message: expect.stringContaining('with the NVIDIA runtime') });
    runtimes = { runc: {} };
    devices = [{ Source: 'cdi', ID: 'amd.com/gpu=0' }];
    expect(await look()).toMatchObject({ state: 'ok', message: expect.stringContaining('with GPUs by CDI') });
    devices = [];
    const hosts = `hosts: [{ name: amd, docker: "unix://${socket}", gpu_access: rocm, gpus: [{ id: renderD128 }] }]`;
    writeFileSync(join(enginesDir, 'hosts.yaml'), hosts);
    expect(await look()).toMatchObject({ state: 'ok', message: expect.stringContaining('with gpu_access: rocm') });
    docker.close();
  });

  it('reports a folder that PostgreSQL cannot enter', { tags: 'root' }, async () => {
    const closed = folders();
    chmodSync(closed, 0o700);
    const { wrong } = await examine({ HEADGATE_DATA_DIR: join(closed, 'data'), HEADGATE_ENGINES_DIR: folders() });
    expect(wrong['data folder']).toContain(`cannot enter ${closed}`);
    chmodSync(closed, 0o711);
    const opened = await examine({ HEADGATE_DATA_DIR: join(closed, 'data'), HEADGATE_ENGINES_DIR: folders() });
    expect(opened.wrong).toEqual({});
  });

  it('checks the program and limits of runs, and names the next step for each missing limit', async () => {
    const dataDir = folders();
    chmodSync(dataDir, 0o711);
    const look = async (env: Record<string, string>) => {
      const found = await examine({ HEADGATE_DATA_DIR: dataDir, HEADGATE_ENGINES_DIR: folders(), ...env });
      return found.checks.filter(({ name }) => name === 'terraform');
    };
    const held = await look({ HEADGATE_RUNS_MEMORY_MIB: '700', HEADGATE_RUNS_DISK_MIB: '300' });
    expect(held[0]?.message).toMatch(/^(OpenTofu|Terraform) \d+\.\d+\.\d+\S* \(\/.*\)$/);
    expect(held[1]?.message).toMatch(
      /^runner: bubblewrap; network: the cluster's nodes; memory: 700 MiB of (a run, cores: \d+|each process \(.*\)); disk: 300 MiB$/,
    );
    const isBounded = held[1]?.message.includes('of a run') === true;
    expect(held[1]?.state).toBe(isBounded ? 'ok' : 'note');
    expect(held[1]?.next?.includes('control groups') ?? false).toBe(!isBounded);
    const open = await look({ HEADGATE_RUNS_EGRESS: 'machine' });
    expect(open[1]).toMatchObject({ state: 'note', next: expect.stringContaining('HEADGATE_RUNS_REQUIRE=network') });
    expect(open[1]?.message).toContain('network: machine (HEADGATE_RUNS_EGRESS=machine)');
    expect(existsSync(join(dataDir, 'runs'))).toBe(false);
    const refused = await look({ HEADGATE_RUNS_EGRESS: 'machine', HEADGATE_RUNS_REQUIRE: 'network' });
    expect(refused).toMatchObject([
      { state: 'wrong', message: expect.stringContaining('HEADGATE_RUNS_REQUIRE requires limited network for runs') },
    ]);
  });

  it('reports the age of the newest backup, and an overdue one as wrong', async () => {
    const database = await processes.database();
    const look = async () => {
      const { checks } = await examine({ DATABASE_URL: database, HEADGATE_ENGINES_DIR: folders() });
      return checks.find(({ name }) => name === 'backups');
    };
    expect(await look()).toMatchObject({ state: 'note', message: 'no backup yet' });
    const organization = (age: string) =>
      withServer(
        database,
        (sql) => sql`insert into organizations (id, name, created_at)
          values (gen_random_uuid(), ${age}, now() - ${age}::interval)`,
      );
    await organization('35 hours');
    expect(await look()).toMatchObject({ state: 'note', message: 'no backup yet' });
    await organization('37 hours');
    expect(await look()).toMatchObject({
      state: 'wrong',
      message: 'no backup was ever recorded, and the database is 37 hours old; the limit is 36 hours',
    });
    const record = (age: string) =>
      withServer(
        database,
        (sql) => sql`insert into backups (name, made_at) values ('a.dump', now() - ${age}::interval)`,
      );
    await record('40 hours');
    expect(await look()).toMatchObject({
      state: 'wrong',
      message: 'the newest good backup, a.dump, is 40 hours old; the limit is 36 hours',
      next: expect.stringContaining('docker compose logs backup'),
    });
    await record('2 hours');
    expect(await look()).toMatchObject({ state: 'ok', message: 'the newest good backup, a.dump, is 2 hours old' });
  });

  it('compares the platform key of the database with that of the data folder', async () => {
    const [database, dataDir] = [await processes.database(), folders()];
    const look = async (env: Record<string, string> = {}) => {
      const own = { DATABASE_URL: database, HEADGATE_DATA_DIR: dataDir, HEADGATE_ENGINES_DIR: folders() };
      const { checks } = await examine({ ...own, ...env });
      return checks.find(({ name }) => name === 'platform key');
    };
    const db = connectDb(database, { poolMax: 1 });
    const log = createLog('silent');
    const gateway = (folder: string, backupPassphrase: string | null) =>
      createSecrets({ db, log, keys: null, dataDir: folder, backupPassphrase });
    const { keyId } = await db.orm.transaction((tx) => gateway(dataDir, null).seal(tx, 'test', 'a secret'));
    expect(await look()).toMatchObject({ state: 'note', message: expect.stringContaining(`${keyId} in platform.key`) });
    const empty = { HEADGATE_DATA_DIR: folders() };
    expect(await look(empty)).toMatchObject({
      state: 'wrong',
      message: expect.stringContaining(`encrypted with the platform key ${keyId}, which is not in platform.key`),
      next: expect.stringContaining('put the platform key of the old machine'),
    });
    const passphrase = 'twenty characters and more';
    await gateway(dataDir, passphrase).check();
    expect(await look()).toMatchObject({ state: 'ok', message: expect.stringContaining('backups contain it') });
    expect(await look(empty)).toMatchObject({
      state: 'wrong',
      next: expect.stringContaining('set the HEADGATE_BACKUP_PASSPHRASE of the old machine'),
    });
    // One of each kind. Nothing else of the rows that they belong to is needed.
    const [old, mark] = ['0123456789abcdef', Buffer.from('\x100123456789abcdef')];
    const id = '00000000-0000-7000-8000-000000000001';
    await db.sql`set session_replication_role = replica`;
    await db.sql`
      insert into webhook_endpoints (id, organization_id, url, description, enabled, secret_key_id, secret_sealed,
        created_at) values (${id}, ${id}, 'http://a', '', true, ${old}, 'x', now())`;
    await db.sql`
      insert into clusters (id, organization_id, name, created_at, access_public_key, access_fingerprint, access_origin,
        access_changed_at, access_key_id, access_sealed) values (${id}, ${id}, 'one', now(), '', '', 'given', now(),
        ${old}, 'x')`;
    await db.sql`
      insert into stack_states (installation_id, serial, lineage, run_id, resources, state, created_at)
      values (${id}, 1, '', ${id}, 0, ${mark}, now())`;
    expect(await look()).toMatchObject({
      state: 'note',
      message: expect.stringContaining('an older key still encrypts 3 values in the database'),
      next: expect.stringContaining('keep the older key'),
    });
    await db.close();
  });

  it('reports the versions of external engines, and files that contradict them', async () => {
    const server = createServer((request, response) => {
      if (request.url === '/version') response.end('{"version":"0.99.0"}');
      else if (request.url === '/metrics') response.end('vllm:num_requests_running{engine="0"} 0.0\n');
      else response.writeHead(404).end();
    }).listen(0, '127.0.0.1');
    await new Promise((resolve) => server.once('listening', resolve));
    const { port } = server.address() as AddressInfo;
    const enginesDir = folders();
    const url = `http://127.0.0.1:${port}`;
    const files = {
      far: externalFile('far', url),
      odd: externalFile('odd', url, { lines: ['kind: openai'] }),
      off: externalFile('off', 'http://127.0.0.1:1'),
    };
    for (const [id, text] of Object.entries(files)) writeFileSync(join(enginesDir, `${id}.yaml`), text);
    const { checks } = await examine({ HEADGATE_DATA_DIR: folders(), HEADGATE_ENGINES_DIR: enginesDir });
    server.close();
    expect(checks.filter(({ name }) => name === 'engines')).toEqual([
      {
        name: 'engines',
        state: 'note',
        message: 'far: vLLM 0.99.0, which this version of Headgate was not tried with',
      },
      { name: 'engines', state: 'note', message: expect.stringContaining('odd: vLLM 0.99.0') },
      {
        name: 'engines',
        state: 'note',
        message: expect.stringContaining('odd: It is vLLM, but its file does not say kind: vllm'),
        next: expect.stringContaining('headgate engines reload'),
      },
      { name: 'engines', state: 'note', message: 'off: does not answer' },
    ]);
  });

  it('runs the other checks when a setting is invalid', async () => {
    const { wrong, checks } = await examine({ PORT: 'eighty' });
    expect(wrong).toEqual({ configuration: expect.stringContaining('PORT: must be a whole number') });
    expect(checks.length).toBeGreaterThan(10);
  });

  it('finds no problems before the first start and beside a gateway, and changes nothing', async () => {
    const home = processes.home();
    // A file among the folders of the PATH has no programs.
    const PATH = `${process.env['PATH']}:${fileURLToPath(import.meta.url)}/bin`;
    const env = { HEADGATE_DATA_DIR: home.dataDir, HEADGATE_ENGINES_DIR: home.enginesDir, PORT: '20003', PATH };
    const before = await runCli(['doctor'], { env, asProcess: true });
    expect(before).toMatchObject({ code: 0, stderr: '', stdout: expect.stringMatching(/\nno problems found\n$/) });
    expect(before.stdout).toContain('does not exist yet; the first start creates it');
    const given = { HEADGATE_BOOTSTRAP_KEY: givenKey };
    const gateway = processes.run({ home, databaseUrl: null, env: given });
    const { port } = new URL(await gateway.url());
    const { checks, wrong } = await examine({ ...env, HEADGATE_API_KEY: givenKey });
    expect(wrong).toEqual({});
    // The engines are those of the gateway that was found, which is not at the default address.
    const engines = checks.filter(({ name }) => name === 'engines').map(({ message }) => message);
    expect(engines.join()).not.toContain('not checked');
    const { checks: withoutKey } = await examine(env);
    expect(withoutKey.find(({ name }) => name === 'engines')?.message).toContain(
      `HEADGATE_API_KEY is not a management key of a platform administrator of http://127.0.0.1:${port}`,
    );
    const said = Object.fromEntries(checks.map(({ name, message }) => [name, message]));
    expect(checks.find(({ name }) => name === 'postgresql')?.message).toMatch(
      /^PostgreSQL 18\S* answers \(built in\)$/,
    );
    expect(said['gateway']).toBe(`runs at http://127.0.0.1:${port}`);
    expect(said['engine files']).toContain('1 of 1');
  });
});
