import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { pino } from 'pino';
import { afterAll, describe, expect, it } from 'vitest';
import { createRegistryLogins } from '#base/docker/registry-logins.ts';
import type { DockerHostSettings } from '#core/catalog/catalog.ts';
import type { ReplicaExit } from '#core/fleet/drivers/replica-exit.ts';
import { explainExit } from '#core/fleet/drivers/start-failure.ts';
import { startDockerGate } from '#edge/docker-gate/docker-gate.ts';
import { containerEngine, createLab, localHost } from '#test/docker/docker-drivers.ts';
import { startRegistry, type TestRegistry } from './registry.ts';

const lab = createLab();
const access = { username: 'ada', password: 'pass/word+1', identityToken: 'a-token-for-good' };
const folders: string[] = [];
afterAll(() => folders.forEach((folder) => rmSync(folder, { recursive: true, force: true })));

function base64(text: string): string {
  return Buffer.from(text).toString('base64');
}

interface Pulled {
  readonly exit: ReplicaExit | null;
  /** Everything that was logged. */
  readonly logged: string;
}

/** Starts an engine whose image is in the registry; its only file is no program. */
async function pull(
  registry: TestRegistry,
  config: object | null,
  host: DockerHostSettings = localHost(lab.docker()),
): Promise<Pulled> {
  const folder = mkdtempSync(join(tmpdir(), 'headgate-logins-'));
  folders.push(folder);
  if (config !== null) writeFileSync(join(folder, 'config.json'), JSON.stringify(config));
  const written = new PassThrough();
  const log = pino({ level: 'trace' }, written);
  const engine = containerEngine({ image: registry.image, entrypoint: ['/weights'] });
  const test = await lab.open([host], [engine], { log, logins: createRegistryLogins({ folder, log }) });
  const { exit } = await test.untilIs(await test.start(engine), 'exited');
  await test.driver.close();
  written.end();
  return { exit, logged: String(written.read() ?? '') };
}

function expectNoSecret(pulled: Pulled): void {
  expect(pulled.logged).not.toBe('');
  const all = JSON.stringify(pulled);
  const { username, password, identityToken } = access;
  for (const secret of [password, identityToken, 'wrong-word', 'wrong-token']) {
    expect(all).not.toContain(secret);
    expect(all).not.toContain(base64(`${username}:${secret}`));
  }
}

/** The cause that operators read. */
function causeOf({ exit }: Pulled): string {
  if (exit === null) throw new Error('It has not ended.');
  const { kind, detail } = explainExit(exit);
  return `${kind}: ${detail}`;
}

function hostOf({ image }: TestRegistry): string {
  return image.slice(0, image.indexOf('/'));
}

describe('an image in a registry with a login', () => {
  it('is not pulled without a login, and the cause says that there is none', async () => {
    const registry = await startRegistry(access);
    const pulled = await pull(registry, null);
    expect(causeOf(pulled)).toMatch(
      /^image_denied: Pulled without a login: there is no \/.*\/config\.json\. .*no basic auth/,
    );
    const others = await pull(registry, { auths: { 'other.example': { auth: base64('ada:pass/word+1') } } });
    expect(causeOf(others)).toContain(`config.json has no login for ${hostOf(registry)}. `);
    expectNoSecret(others);
    expect(registry.layerRequests()).toBe(0);
    registry.close();
  });

  it('is not pulled with a login in a credential helper, and the cause says so', async () => {
    const registry = await startRegistry(access);
    const auths = { [hostOf(registry)]: {} };
    for (const config of [{ auths, credsStore: 'desktop' }, { credHelpers: { [hostOf(registry)]: 'desktop' } }]) {
      expect(causeOf(await pull(registry, config))).toContain(
        `delegates the login for ${hostOf(registry)} to the credential helper desktop, which Headgate does not run`,
      );
    }
    registry.close();
  });

  it('is not pulled with a wrong login, which no message shows', async () => {
    const registry = await startRegistry(access);
    const pulled = await pull(registry, { auths: { [hostOf(registry)]: { auth: base64('ada:wrong-word') } } });
    expect(causeOf(pulled)).toMatch(/^image_denied: Pulled with the login for 127\.0\.0\.1:\d+ in /);
    expect(causeOf(pulled)).toContain('not you: Basic *** ada:***');
    expectNoSecret(pulled);
    registry.close();
    const tokens = await startRegistry(access, { scheme: 'token' });
    const entry = { auth: base64('ada:'), identitytoken: 'wrong-token' };
    const refused = await pull(tokens, { auths: { [hostOf(tokens)]: entry } });
    expect(causeOf(refused)).toMatch(/^image_denied: Pulled with the login/);
    expectNoSecret(refused);
    tokens.close();
  });

  it('is pulled with user and password', async () => {
    const registry = await startRegistry(access);
    registry.release();
    const pulled = await pull(registry, { auths: { [hostOf(registry)]: { auth: base64('ada:pass/word+1') } } });
    // It is no program, which only a container can find out.
    expect(pulled.exit).toMatchObject({ exitCode: 126 });
    expect(registry.layerRequests()).toBe(1);
    expectNoSecret(pulled);
    const containers = await lab.docker().call('GET', '/containers/json?all=1');
    expect(JSON.stringify(containers)).not.toContain(access.password);
    registry.close();
  });

  it('is pulled through the Docker gate, which logs no login', async () => {
    const registry = await startRegistry(access);
    registry.release();
    const written = new PassThrough();
    const policy = {
      images: [registry.image],
      binds: [],
      volumes: [],
      allowsPorts: false,
      allowsSwarm: false,
      runImages: [],
      runNetworks: [],
    };
    const { socketPath } = lab.docker();
    const log = pino({ level: 'trace' }, written);
    const gate = await startDockerGate({ host: '127.0.0.1', port: 0, socketPath, policy, log });
    const docker = { type: 'tcp', host: '127.0.0.1', port: gate.port, tls: null } as const;
    const config = { auths: { [hostOf(registry)]: { auth: base64('ada:pass/word+1') } } };
    const pulled = await pull(registry, config, localHost(lab.docker(), { docker }));
    expect(pulled.exit).toMatchObject({ exitCode: 126 });
    expect(registry.layerRequests()).toBe(1);
    expectNoSecret(pulled);
    await gate.close();
    expect(String(written.read() ?? '')).not.toMatch(/pass|X-Registry/i);
    registry.close();
  });

  it('is pulled with an identity token', async () => {
    const registry = await startRegistry(access, { scheme: 'token' });
    registry.release();
    const entry = { auth: base64('00000000-0000-0000-0000-000000000000:'), identitytoken: access.identityToken };
    const pulled = await pull(registry, { auths: { [`https://${hostOf(registry)}/v2/`]: entry } });
    expect(pulled.exit).toMatchObject({ exitCode: 126 });
    expectNoSecret(pulled);
    registry.close();
  });
});
