import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { copyFileSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { connect, type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Duplex, PassThrough } from 'node:stream';
import { pino } from 'pino';
import { afterAll, describe, expect, it } from 'vitest';
import type { DockerHostSettings } from '#core/catalog/catalog.ts';
import { freePort } from '#test/free-port.ts';
import { ask, containerEngine, createLab, holding, localHost, statusOf } from '#test/docker/docker-drivers.ts';

const keys = makeKeys();
const port = await freePort();
const tls = { ca: `${keys}/ca.pem`, cert: `${keys}/client.pem`, key: `${keys}/client.key` };
const lab = createLab(() => [
  `--host=tcp://127.0.0.1:${port}`,
  '--tlsverify',
  `--tlscacert=${keys}/ca.pem`,
  `--tlscert=${keys}/server.pem`,
  `--tlskey=${keys}/server.key`,
]);
afterAll(() => rmSync(keys, { recursive: true, force: true }));

/** An authority of its own, and what it has signed for a Docker engine and for its client. */
function makeKeys(): string {
  const dir = mkdtempSync(join(tmpdir(), 'headgate-docker-keys-'));
  const run = (command: string): void => {
    execFileSync('openssl', command.split(' '), { cwd: dir, stdio: 'ignore' });
  };
  const key = '-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes';
  run(`req -x509 ${key} -days 2 -subj /CN=authority -keyout ca.key -out ca.pem`);
  for (const [name, extension] of [
    ['server', 'subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth\n'],
    ['client', 'extendedKeyUsage=clientAuth\n'],
  ] as const) {
    writeFileSync(join(dir, `${name}.ext`), extension);
    run(`req ${key} -subj /CN=${name} -keyout ${name}.key -out ${name}.csr`);
    run(
      `x509 -req -in ${name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile ${name}.ext -out ${name}.pem`,
    );
  }
  return dir;
}

function tlsHost(over: Partial<DockerHostSettings> = {}): DockerHostSettings {
  const docker = { type: 'tcp' as const, host: '127.0.0.1', port, tls };
  return { ...localHost(lab.docker()), name: 'far', docker, address: '127.0.0.1', ...over };
}

describe('the GPUs of a host', () => {
  it("come from the file, or from nvidia-smi in an engine's own image", async () => {
    const byHand = { id: 'GPU-cccc', memoryBytes: 1, profile: 'H100' };
    const test = await lab.open([localHost(lab.docker(), { name: 'asked', gpus: null })]);
    const asked = await test.until(({ hosts: [host] }) => host?.gpus.length === 2 && host);
    expect(asked).toEqual({
      name: 'asked',
      pools: ['lab'],
      reachable: true,
      gpus: ['GPU-aaaa', 'GPU-bbbb'].map((id) => ({ id, memoryBytes: 80 * 2 ** 30, profile: 'Fake H100' })),
    });
    const listed = await lab.open([localHost(lab.docker(), { gpus: [byHand] })]);
    expect((await listed.driver.observe()).hosts[0]?.gpus).toEqual([byHand]);
  });

  it('report their used memory and the processes that use them', async () => {
    const test = await lab.open();
    expect(await test.driver.probeGpus({ host: 'local', gpuIds: ['GPU-bbbb'] })).toEqual([
      {
        gpuId: 'GPU-bbbb',
        usedBytes: 4 * 2 ** 30,
        totalBytes: 80 * 2 ** 30,
        busy: 0.37,
        processes: ['python3 (pid 4711)'],
      },
    ]);
    expect(await test.driver.readGpus({ host: 'local', gpuIds: ['GPU-bbbb'] })).toMatchObject([
      { gpuId: 'GPU-bbbb', busy: 0.37, processes: [] },
    ]);
    expect(await test.driver.probeGpus({ host: 'local', gpuIds: [] })).toBeNull();
    expect(await test.driver.probeGpus({ host: 'elsewhere', gpuIds: ['GPU-bbbb'] })).toBeNull();
    await expect.poll(() => lab.containersOf(test.fleetId)).toEqual([]);
  });

  it('cannot be probed when containers get no GPUs', async () => {
    const test = await lab.open([localHost(lab.docker(), { gpuAccess: 'nvidia', gpus: null })]);
    expect(await test.driver.probeGpus({ host: 'local', gpuIds: ['GPU-bbbb'] })).toBeNull();
    expect((await test.driver.observe()).hosts[0]).toMatchObject({ reachable: true, gpus: [] });
  });
});

describe('a host over TLS', () => {
  it('is not called with an untrusted key, and its containers are assumed to run', async () => {
    const alien = makeKeys();
    try {
      const stranger = { ca: tls.ca, cert: `${alien}/client.pem`, key: `${alien}/client.key` };
      const docker = { type: 'tcp' as const, host: '127.0.0.1', port, tls: stranger };
      const test = await lab.open([tlsHost({ docker })]);
      expect((await test.driver.observe()).hosts).toMatchObject([{ name: 'far', reachable: false }]);
      const { exit } = await test.untilIs(await test.start(containerEngine()), 'exited');
      expect(exit?.startErrorCode).toBe('HOST_UNREACHABLE');
    } finally {
      rmSync(alien, { recursive: true, force: true });
    }
  });

  it('publishes replicas on its own address only, without development routes', async () => {
    const engine = containerEngine({ env: { VLLM_SERVER_DEV_MODE: '1' } });
    const test = await lab.open([tlsHost()], [engine]);
    const replica = await test.untilReady(await test.start(engine));
    expect(replica.endpoint.host).toBe('127.0.0.1');
    expect(replica.endpoint.port).toBeGreaterThan(1024);
    expect(await statusOf(replica, '/v1/models')).toBe(200);
    expect(await statusOf(replica, '/v1/models', false)).toBe(401);
    expect(await statusOf(replica, '/is_sleeping')).toBe(404);
    const [container] = await lab.containersOf(test.fleetId);
    expect(JSON.stringify(container)).toContain(
      `"IP":"127.0.0.1","PrivatePort":8000,"PublicPort":${replica.endpoint.port}`,
    );
  });
});

describe('a host over SSH', () => {
  it('is rejected when its host key differs from the known one', async () => {
    const ssh = await startSshServer();
    const test = await lab.open([sshHost(ssh, { hostKey: `SHA256:${'A'.repeat(43)}` })]);
    expect((await test.driver.observe()).hosts).toMatchObject([{ name: 'far', reachable: false }]);
    expect(ssh.opened).toEqual([]);
    ssh.close();
  });

  it('forwards to replicas through a socket private to this user, with development routes', async () => {
    const ssh = await startSshServer();
    const test = await lab.open([sshHost(ssh)]);
    const id = await test.start(containerEngine());
    const replica = await test.untilReady(id);
    expect(replica.endpoint.socketPath).toMatch(/headgate-ssh-/);
    expect(await statusOf(replica, '/is_sleeping')).toBe(200);
    expect((await ask(replica.endpoint, '/v1/models', replica.headerLines)).text).toContain('acme/chat');
    // The connection breaks; the next ones are made over a new one.
    ssh.drop();
    await expect.poll(() => statusOf(replica, '/health')).toBe(200);
    await test.stop(id);
    await test.untilIs(id, 'exited');
    expect(await statusOf(replica, '/health')).toBe(0);
    await test.driver.close();
    ssh.close();
  });
});

describe('a machine listed twice', () => {
  const twice = /^it has the same Docker engine as near \(ID \S+\): hosts\.yaml lists a machine twice/;

  it('is used under its first name only; the second is unreachable, with the reason', async () => {
    const written = new PassThrough();
    const near = localHost(lab.docker(), {
      name: 'near',
      gpus: [{ id: 'GPU-aaaa', memoryBytes: null, profile: null }],
    });
    const test = await lab.open([near, tlsHost({ gpus: near.gpus })], undefined, { log: pino(written) });
    const trouble = expect.stringMatching(twice);
    expect((await test.driver.observe()).hosts).toMatchObject([
      { name: 'near', reachable: true },
      { name: 'far', reachable: false, trouble },
    ]);
    const logged = String(written.read()).trim().split('\n');
    const errors = logged.map((line) => JSON.parse(line) as { level: number }).filter(({ level }) => level === 50);
    expect(errors).toMatchObject([{ host: 'far', trouble, msg: expect.stringContaining('ignoring a host') }]);
    const refused = await test.start(containerEngine(), { placement: { host: 'far', gpuIds: ['GPU-aaaa'] } });
    const { exit } = await test.untilIs(refused, 'exited');
    expect(exit).toMatchObject({ startErrorCode: 'HOST_UNREACHABLE', logTail: trouble });
    const id = await test.start(containerEngine(), { placement: { host: 'near', gpuIds: ['GPU-aaaa'] } });
    await test.untilReady(id);
    // Its container is seen once, with the machine's first name.
    const seen = (await test.driver.observe()).replicas.filter(({ state }) => state === 'running');
    expect(seen).toMatchObject([{ replica: { id }, placement: { host: 'near' } }]);
  });

  it('assigns its replicas to its first name once that is reachable', async () => {
    const keyless = mkdtempSync(join(tmpdir(), 'headgate-docker-keys-'));
    const docker = { type: 'tcp' as const, host: '127.0.0.1', port, tls: { ...tls, key: `${keyless}/client.key` } };
    const test = await lab.open([tlsHost({ name: 'near', docker }), localHost(lab.docker(), { name: 'far' })]);
    const id = await test.start(containerEngine(), { placement: { host: 'far', gpuIds: [] } });
    await test.untilReady(id);
    expect((await test.driver.observe()).hosts).toMatchObject([{ reachable: false }, { name: 'far', reachable: true }]);
    copyFileSync(tls.key, `${keyless}/client.key`);
    const { replicas, hosts } = await test.until((found) => found.hosts[0]?.reachable === true && found);
    expect(replicas).toMatchObject([{ replica: { id }, placement: { host: 'near' } }]);
    expect(hosts[1]).toMatchObject({ reachable: false, trouble: expect.stringMatching(twice) });
    rmSync(keyless, { recursive: true, force: true });
  });
});

describe('an unreachable host', () => {
  it('is reported, and keeps its last known state', async () => {
    const test = await lab.open([tlsHost()]);
    const id = await test.start(containerEngine());
    const replica = await test.untilReady(id);
    lab.docker().freeze(true);
    try {
      // Requests from before the freeze may still be answered.
      const { hosts, replicas } = await test.until((found) => found.hosts[0]?.reachable === false && found);
      expect(hosts).toMatchObject([{ name: 'far', reachable: false }]);
      expect(replicas).toMatchObject([{ replica, state: 'running' }]);
    } finally {
      lab.docker().freeze(false);
    }
    await test.until(({ hosts: [host] }) => host?.reachable === true);
  });

  it('loses its containers when its Docker engine is killed, which is not a requested stop', async () => {
    const test = await lab.open();
    const id = await test.start(containerEngine());
    await test.untilReady(id);
    let changes = 0;
    test.driver.onChange(() => (changes += 1));
    await lab.docker().kill();
    await test.until(({ hosts: [host] }) => host?.reachable === false);
    expect((await test.driver.observe()).replicas).toMatchObject([{ replica: { id }, state: 'running' }]);
    await expect.poll(() => changes).toBeGreaterThan(0);
    await lab.docker().start();
    const { exit } = await test.untilIs(id, 'exited');
    expect(exit).toMatchObject({ stopRequested: false, startErrorCode: null });
    await test.driver.forget(id, holding);
  });

  it('adopts its containers when its Docker engine restores them', async () => {
    const test = await lab.open();
    const id = await test.start(containerEngine());
    const replica = await test.untilReady(id);
    await lab.docker().kill();
    await test.until(({ hosts: [host] }) => host?.reachable === false);
    expect(await statusOf(replica, '/health')).toBe(200);
    await lab.docker().start(['--live-restore']);
    await test.until(({ hosts: [host] }) => host?.reachable === true);
    expect((await test.driver.observe()).replicas).toMatchObject([{ replica, state: 'running' }]);
    expect(await statusOf(replica, '/health')).toBe(200);
    await test.stop(id);
    expect((await test.untilIs(id, 'exited')).exit).toMatchObject({ stopRequested: true });
  });
});

interface SshServer {
  readonly port: number;
  readonly hostKey: string;
  readonly keyPath: string;
  /** Connections that were opened for clients. */
  readonly opened: string[];
  /** Breaks all connections. */
  drop(): void;
  close(): void;
}

interface SshChannelRequest {
  readonly socketPath: string;
  readonly destIP: string;
  readonly destPort: number;
}
type Accept = () => Duplex | undefined;
interface SshConnection {
  on(event: 'authentication', listener: (context: { method: string; accept(): void; reject(): void }) => void): this;
  on(
    event: 'openssh.streamlocal' | 'tcpip',
    listener: (accept: Accept, reject: () => void, info: SshChannelRequest) => void,
  ): this;
  on(event: 'error', listener: () => void): this;
  end(): void;
}
interface Ssh2 {
  Server: new (
    options: { hostKeys: string[] },
    onConnection: (connection: SshConnection) => void,
  ) => {
    listen(port: number, host: string, listening: () => void): void;
    address(): AddressInfo;
    close(): void;
  };
  utils: {
    generateKeyPairSync(type: 'ed25519'): { private: string };
    parseKey(key: string): { getPublicSSH(): Buffer } | Error;
  };
}

interface SshKey {
  readonly text: string;
  readonly publicKey: Buffer;
}

/** Makes a key that it can read: it cannot read one in some hundred keys of ssh2. */
function makeKey({ utils }: Ssh2): SshKey {
  for (;;) {
    const text = utils.generateKeyPairSync('ed25519').private;
    const key = utils.parseKey(text);
    if (!(key instanceof Error)) return { text, publicKey: key.getPublicSSH() };
  }
}

/** An SSH server that forwards to sockets and ports of this machine, as OpenSSH's does. */
async function startSshServer(): Promise<SshServer> {
  const ssh2 = createRequire(createRequire(import.meta.url).resolve('dockerode'))('ssh2') as Ssh2;
  const host = makeKey(ssh2);
  const keyPath = join(keys, 'id_ed25519');
  writeFileSync(keyPath, makeKey(ssh2).text, { mode: 0o600 });
  const connections = new Set<SshConnection>();
  const opened: string[] = [];
  const bridge = (accept: Accept, what: string, socket: Duplex): void => {
    opened.push(what);
    const channel = accept();
    if (channel === undefined) return;
    for (const end of [channel, socket]) end.on('error', () => undefined);
    channel.pipe(socket).pipe(channel);
  };
  const server = new ssh2.Server({ hostKeys: [host.text] }, (connection) => {
    connections.add(connection);
    connection
      .on('authentication', (context) => (context.method === 'publickey' ? context.accept() : context.reject()))
      .on('openssh.streamlocal', (accept, _, { socketPath }) => bridge(accept, socketPath, connect(socketPath)))
      .on('tcpip', (accept, _, { destIP, destPort }) => bridge(accept, destIP, connect(destPort, destIP)))
      .on('error', () => undefined);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const digest = createHash('sha256').update(host.publicKey).digest('base64');
  const drop = (): void => connections.forEach((connection) => connection.end());
  return {
    port: server.address().port,
    hostKey: `SHA256:${digest.replace(/=+$/, '')}`,
    keyPath,
    opened,
    drop,
    close() {
      drop();
      server.close();
    },
  };
}

function sshHost({ port: sshPort, hostKey, keyPath }: SshServer, over: { hostKey?: string } = {}): DockerHostSettings {
  const { socketPath } = lab.docker();
  const docker = {
    type: 'ssh' as const,
    user: 'root',
    host: '127.0.0.1',
    port: sshPort,
    socketPath,
    key: keyPath,
    hostKey,
  };
  return { ...localHost(lab.docker()), name: 'far', docker: { ...docker, ...over } };
}
