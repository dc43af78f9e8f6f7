import { existsSync, mkdirSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { once } from 'node:events';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { readDockerHosts, requireRunHosts, startApp } from '#app/app.ts';
import { ConfigError } from '#base/config-error.ts';
import { readSecretFiles } from '#base/config/files.ts';
import { type Config, parseConfig } from '#base/config/read-config.ts';
import { createEngineFolder } from '#core/catalog/catalog.ts';
import { connectDb, describeConnectionFailure, migrateDb } from '#base/database/database.ts';
import { createLog } from '#base/log.ts';
import { databaseUrl as otherDatabase } from '#test/database.ts';
import { addPostgres } from '#test/programs/built-in-postgres.ts';
import {
  engineFile,
  engineRecords,
  type Home,
  type StartOptions,
  useProcesses,
} from '#test/programs/gateway-process.ts';

const processes = useProcesses();

/** Nothing that anybody listens to for long: a URL that parses, of a server that is not there. */
const nowhere = 'postgres://user:hidden-password@127.0.0.1:9/headgate';

/** Starts a gateway that must not start. @returns what it says, which is one sentence and no more */
async function refusalOf(options: StartOptions): Promise<string> {
  // The wait of a start without a database is not tested here.
  const gateway = processes.run({ ...options, env: { HEADGATE_START_WAIT_SECONDS: '0', ...options.env } });
  const { code } = await gateway.exited;
  const { stdout, stderr } = gateway.output;
  expect(`${stdout}${stderr}`).not.toMatch(/\n {4}at |node:internal|hidden-password|Headgate listens/);
  expect(stderr.trimEnd().split('\n')).toHaveLength(1);
  expect(code).toBe(1);
  expect(engineRecords(options.home.dataDir)).toEqual([]);
  return stderr;
}

/** Checks that a start that was rejected in time has made nothing. */
function expectNothingMade({ dataDir }: Home): void {
  expect(existsSync(dataDir)).toBe(false);
}

/** Returns the message of the ConfigError for invalid settings, which a start prints. */
function settingsRefusal(env: Readonly<Record<string, string>>): string {
  try {
    parseConfig(readSecretFiles(env));
  } catch (error) {
    if (error instanceof ConfigError) return error.message;
    throw error;
  }
  throw new Error('the settings are accepted');
}

/** The reason that a start names for a database that it cannot use. */
const unusableReason = (databaseUrl: string): Promise<string | null> =>
  migrateDb(databaseUrl).then(() => null, describeConnectionFailure);

const swarmEngine = JSON.stringify({
  version: 1,
  id: 'chat',
  name: 'Chat',
  hugging_face_id: 'acme/chat',
  task_type: 'chat',
  context_length: 8192,
  pricing: { input_per_million: 0.1, cached_input_per_million: 0.05, output_per_million: 0.4 },
  driver: 'swarm',
  image: 'vllm/vllm-openai:v0.32.0',
  args: ['acme/chat', '--max-model-len', '8192'],
});

describe('a start with an invalid setting', () => {
  it.each([
    ['PORT', '65536', /^PORT: must be between 0 and 65535\.$/m],
    [
      'HEADGATE_BOOTSTRAP_KEY',
      'hidden-password with blanks and 32 more',
      /^HEADGATE_BOOTSTRAP_KEY: must be 32 to 512/m,
    ],
    ['HEADGATE_ENGINES_DIR', '/var/no-such-folder', /^HEADGATE_ENGINES_DIR: .*no-such-folder.*cannot be read/m],
    ['HOST', '203.0.113.1', /^HOST: cannot listen on 203\.0\.113\.1/m],
  ])('rejects %s=%s with one sentence, and creates nothing', async (name, value, sentence) => {
    const home = processes.home();
    expect(await refusalOf({ home, databaseUrl: nowhere, env: { [name]: value } })).toMatch(sentence);
    expectNothingMade(home);
  });

  it.each([
    ['PORT', 'http', /^PORT: must be a whole number\.$/m],
    ['PORT', '-1', /^PORT: must be a whole number\.$/m],
    ['LOG_LEVEL', 'loud', /^LOG_LEVEL: .*debug.*\.$/m],
    ['DATABASE_URL', 'localhost:5432', /^DATABASE_URL: must be a URL such as postgres:/m],
    ['DATABASE_URL', 'mysql://root:hidden-password@localhost/x', /^DATABASE_URL: must be a URL such as postgres:/m],
    [
      'DATABASE_URL',
      'postgres://u:hidden-password%@127.0.0.1/x',
      /^DATABASE_URL: contains an invalid "%"; write it as "%25" in a URL\.$/m,
    ],
    ['REDIS_URL', 'localhost', /^REDIS_URL: must be a URL such as redis:/m],
    ['HEADGATE_BOOTSTRAP_KEY', 'hidden-password', /^HEADGATE_BOOTSTRAP_KEY: must be 32 to 512 printable/m],
    ['HEADGATE_BOOTSTRAP_EMAIL', 'nobody', /^HEADGATE_BOOTSTRAP_EMAIL: must be an email address\.$/m],
    ['HEADGATE_BOOTSTRAP_PASSWORD', 'short', /^HEADGATE_BOOTSTRAP_PASSWORD: must have 8 characters or more\.$/m],
    ['HEADGATE_SHUTDOWN_SECONDS', '1.5', /^HEADGATE_SHUTDOWN_SECONDS: must be a whole number\.$/m],
    ['HEADGATE_PORT', '8080', /^HEADGATE_PORT: unknown setting; use PORT \(without the prefix\)\.$/m],
    ['HEADGATE_DATABASE_URL', 'x', /^HEADGATE_DATABASE_URL: .*; use DATABASE_URL \(without the prefix\)\.$/m],
    ['HEADGATE_ENGINE_DIR', 'x', /^HEADGATE_ENGINE_DIR: .*; the closest setting is HEADGATE_ENGINES_DIR\.$/m],
    ['HEADGATE_REDISURL', 'x', /^HEADGATE_REDISURL: .*; the closest setting is REDIS_URL\.$/m],
    ['HEADGATE_OF_ANOTHER_PROGRAM', 'x', /^HEADGATE_OF_ANOTHER_PROGRAM: unknown setting\.$/m],
  ])('rejects %s=%s when it reads the settings', (name, value, sentence) => {
    const message = settingsRefusal({ DATABASE_URL: nowhere, [name]: value });
    expect(message).toMatch(sentence);
    expect(message).not.toMatch(/\n|hidden-password/);
  });

  it('rejects a PORT in use before PostgreSQL is set up', async () => {
    const other = createServer().listen(0, '127.0.0.1');
    await once(other, 'listening');
    const address = other.address();
    const port = typeof address === 'object' && address !== null ? address.port : 0;
    const home = processes.home();
    const options = { home, databaseUrl: null, env: { PORT: String(port) } };
    expect(await refusalOf(options)).toMatch(new RegExp(`^PORT: port ${port} is already in use on 127\\.0\\.0\\.1`));
    other.close();
    expectNothingMade(home);
  });

  it('rejects a PORT taken at the last moment, and creates no key', async () => {
    const other = createServer().listen(0, '127.0.0.1');
    await once(other, 'listening');
    const address = other.address();
    const PORT = String(typeof address === 'object' && address !== null ? address.port : 0);
    const { dataDir, dir } = processes.home();
    mkdirSync(dataDir);
    const databaseUrl = await processes.database();
    const db = connectDb(databaseUrl);
    const hosts = { hosts: [], areHostsNamed: true, swarm: null };
    const files = { engines: [], files: [], engineFolder: createEngineFolder(dir), hosts };
    const parts = {
      log: createLog('silent'),
      db,
      databaseUrl,
      dataDir,
      gatewayDir: dataDir,
      ...files,
      workingDirectory: dir,
    };
    await expect(startApp({ ...parts, config: parseConfig({ PORT }) })).rejects.toThrow(
      /^PORT: port \d+ is already in use/,
    );
    const [counts] = await db.sql`select count(*)::int as organizations from organizations`;
    expect(counts).toEqual({ organizations: 0 });
    await db.close();
    other.close();
  });

  it('names file, line and field of an invalid field in an engine file', async () => {
    const home = processes.home({ chat: engineFile('chat').replace('context_length: 8192', 'context_length: many') });
    expect(await refusalOf({ home, databaseUrl: nowhere })).toMatch(
      /^HEADGATE_ENGINES_DIR: engines\/chat\.yaml:6: context_length: \S/,
    );
    expectNothingMade(home);
  });

  it('rejects runs in containers on a swarm without swarm.gates', async () => {
    const env = { HEADGATE_RUNS_IMAGE: 'headgate-runs:1' };
    const sentence = /^HEADGATE_RUNS_IMAGE: .*cannot be services of a swarm\. Set swarm\.gates in hosts\.yaml to /;
    const home = processes.home();
    const hosts = join(home.enginesDir, 'hosts.yaml');
    writeFileSync(hosts, 'swarm: {docker: "unix:///none.sock"}');
    expect(await refusalOf({ home, databaseUrl: nowhere, env })).toMatch(sentence);
    rmSync(hosts);
    writeFileSync(join(home.enginesDir, 'chat.yaml'), swarmEngine);
    expect(await refusalOf({ home, databaseUrl: nowhere, env })).toMatch(sentence);
    expectNothingMade(home);
    // Each of these says it, and the start goes on to what is missing next.
    writeFileSync(hosts, 'swarm: {docker: "unix:///none.sock", gates: "tcp://tasks.gate:2375"}');
    expect(await refusalOf({ home, databaseUrl: nowhere, env })).toMatch(/^DATABASE_URL: /);
    const config = parseConfig(env);
    const loaded = createEngineFolder(home.enginesDir).read();
    if (!loaded.ok) throw new Error('the engine file is rejected');
    const check = (settings: Config): void =>
      requireRunHosts(settings, readDockerHosts(settings.docker, home.enginesDir), loaded.engines);
    writeFileSync(hosts, 'hosts: [{name: a, docker: "unix:///a"}]');
    expect(() => check(config)).not.toThrow();
    rmSync(hosts);
    expect(() => check(config)).toThrow(sentence);
    expect(() => check(parseConfig({}))).not.toThrow();
  });

  it('rejects a data folder that cannot be created', async () => {
    const home = processes.home();
    writeFileSync(join(home.dir, 'file'), '');
    const dataDir = join(home.dir, 'file', 'data');
    expect(await refusalOf({ home: { ...home, dataDir }, databaseUrl: nowhere })).toMatch(
      /^HEADGATE_DATA_DIR: the folder \S+ cannot be used/,
    );
  });
});

describe('a PostgreSQL that cannot be set up', () => {
  it('fails with one sentence that includes the error of initdb', async () => {
    const home = processes.home();
    // No file of more than 200 blocks of half a kilobyte, which the gateway does without and PostgreSQL does not.
    const command = ['sh', '-c', `ulimit -f 200; exec "${process.execPath}" src/programs/start.js`];
    expect(await refusalOf({ home, databaseUrl: null, command })).toMatch(
      /^DATABASE_URL: set it to a PostgreSQL, because the built-in one does not run here \(\S+initdb: .*initdb: /,
    );
  });
});

describe('a start with an unusable database', () => {
  it('names the error of an unreachable server, by address and by name', async () => {
    const home = processes.home();
    expect(await refusalOf({ home, databaseUrl: nowhere })).toMatch(
      /^DATABASE_URL: the database cannot be used \(.*ECONNREFUSED/,
    );
    expect(await unusableReason(nowhere.replace('127.0.0.1', 'no-such-host.invalid'))).toContain('no-such-host');
    // The second address of a name that has several.
    expect(await unusableReason(nowhere.replace('127.0.0.1', 'localhost'))).toContain('ECONNREFUSED');
  });

  it('names a server that closes each connection, such as a proxy without a database', async () => {
    const other = createServer((socket) => {
      socket.on('error', () => undefined);
      socket.on('data', () => socket.end());
    });
    await once(other.listen(0, '127.0.0.1'), 'listening');
    const address = other.address();
    const port = typeof address === 'object' && address !== null ? address.port : 0;
    const databaseUrl = nowhere.replace(':9/', `:${port}/`);
    expect(await unusableReason(databaseUrl)).toBe(`the connection to 127.0.0.1:${port} was closed`);
    other.close();
  });

  it('accepts an IPv6 address and a socket folder as they are written', async () => {
    expect(await unusableReason(nowhere.replace('127.0.0.1', '[::1]'))).toMatch(/^connect \w+ ::1:9/);
    const home = processes.home();
    const databaseUrl = `postgres:///headgate?host=${home.dir}`;
    expect(await refusalOf({ home, databaseUrl })).toContain(
      `DATABASE_URL: the database cannot be used (connect ENOENT ${home.dir}/.s.PGSQL.5432).`,
    );
  });

  it('names a wrong password without printing it', async () => {
    const url = new URL(await processes.database());
    url.password = 'hidden-password';
    expect(await refusalOf({ home: processes.home(), databaseUrl: url.href })).toMatch(
      /^DATABASE_URL: the database cannot be used \(password authentication failed/,
    );
  });

  it('names a database that does not exist', async () => {
    const databaseUrl = otherDatabase(await processes.database(), 'no_such_database');
    expect(await unusableReason(databaseUrl)).toContain('database "no_such_database" does not exist');
  });

  it('rejects a database migrated by a newer version, with that version and its migration', async () => {
    const databaseUrl = await processes.database();
    const db = connectDb(databaseUrl);
    await db.sql`insert into drizzle.__drizzle_migrations (hash, created_at, name, version)
      values ('abc', ${Date.UTC(2099, 0)}, '0099_wider_names', '9.4.0')`;
    await db.close();
    expect(await refusalOf({ home: processes.home(), databaseUrl })).toMatch(
      /^The database is newer than this Headgate: version 9\.4\.0 has migrated it, .* 0099_wider_names\. Start version 9\.4\.0/,
    );
  });
});

describe('a data folder', () => {
  it('of a running gateway with the built-in PostgreSQL is rejected with its process id, and that gateway continues', async () => {
    const home = processes.home();
    await addPostgres(home);
    const first = processes.run({ home, databaseUrl: null });
    const url = await first.url();
    expect(await refusalOf({ home, databaseUrl: null })).toMatch(
      new RegExp(`^HEADGATE_DATA_DIR: the folder \\S+ is in use by a gateway \\(process ${first.pid}\\)`),
    );
    expect((await fetch(`${url}/v1/pricing`)).status).toBe(200);
    expect(readdirSync(home.dataDir)).toContain('gateway.lock');
  });
});
