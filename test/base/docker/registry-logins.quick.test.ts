import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { pino } from 'pino';
import { afterAll, describe, expect, it } from 'vitest';
import { parseConfig } from '#base/config/read-config.ts';
import { DockerError } from '#base/docker/api.ts';
import { createRegistryLogins, hideLogin, registryOf } from '#base/docker/registry-logins.ts';
import { concernsLogin, startErrorCode } from '#core/fleet/drivers/docker/start-error-code.ts';

const root = mkdtempSync(join(tmpdir(), 'headgate-logins-'));
afterAll(() => rmSync(root, { recursive: true, force: true }));

const adaAuth = base64('ada:secret-1');
const hub = 'https://index.docker.io/v1/';

function base64(text: string): string {
  return Buffer.from(text).toString('base64');
}

/** The logins of a config.json of that text; an object stands for its JSON. */
function open(config: string | object | null) {
  const folder = mkdtempSync(join(root, 'docker-'));
  const path = join(folder, 'config.json');
  const write = (content: string | object): void =>
    writeFileSync(path, typeof content === 'string' ? content : JSON.stringify(content));
  if (config !== null) write(config);
  const written = new PassThrough();
  const logins = createRegistryLogins({ folder, log: pino({ level: 'trace' }, written) });
  return { logins, path, write, logged: () => String(written.read() ?? '') };
}

describe('an image without a usable login', () => {
  it.each<[string, string, object]>([
    ['of another registry', 'acme.example/a', { auths: { 'other.example': { auth: adaAuth } } }],
    ['of the same host on another port', 'acme.example:5000/a', { auths: { 'acme.example': { auth: adaAuth } } }],
    ['of a host that this one ends with', 'acme.example/a', { auths: { example: { auth: adaAuth } } }],
    ['of Docker Hub, elsewhere', 'acme.example/a', { auths: { [hub]: { auth: adaAuth } } }],
    ['of another registry, for Docker Hub', 'acme/a', { auths: { acme: { auth: adaAuth } } }],
    ['of another kind that is filed below Docker Hub', 'a', { auths: { [`${hub}refresh-token`]: { auth: adaAuth } } }],
  ])('gets no login %s', async (_, image, config) => {
    const { login, remark, isUnusable } = await open(config).logins.find(image);
    expect({ login, isUnusable }).toEqual({ login: null, isUnusable: false });
    expect(remark).toMatch(/^Pulled without a login: .* has no login for \S+\.$/);
  });

  it.each(['', 'ada', base64('no colon'), base64(':no user'), base64('ada:secret-1').slice(0, 5) + '!', 7, null])(
    'gets no login from the entry %j',
    async (auth) => {
      const { logins } = open({ auths: { 'acme.example': { auth } } });
      expect((await logins.find('acme.example/a')).login).toBeNull();
    },
  );

  it('gets a remark when its login is in a credential helper', async () => {
    const asked = (config: object, image = 'acme.example/a') => open(config).logins.find(image);
    const remark = expect.stringMatching(
      /delegates the login for acme\.example to the credential helper pass, which Headgate does not run/,
    );
    expect(await asked({ credHelpers: { 'acme.example': 'pass' } })).toEqual({ login: null, remark, isUnusable: true });
    const kept = { auths: { 'acme.example': {} }, credsStore: 'pass' };
    expect(await asked(kept)).toEqual({ login: null, remark, isUnusable: true });
    // It may have none for this registry, too.
    expect(await asked({ credsStore: 'pass' })).toEqual({ login: null, remark, isUnusable: false });
    expect(await asked({ credHelpers: { [hub]: 'pass' } }, 'vllm/vllm-openai')).toMatchObject({ isUnusable: true });
  });

  it.each<[string, string]>([
    ['{"auths": {"acme.example": {"auth": "YWRhOnNlY3JldC0x"', 'is not JSON'],
    ['secret-1', 'is not JSON'],
    ['{"auths": ["YWRhOnNlY3JldC0x"]}', 'does not have the format'],
    [`{"auths": {}, "x": "${'x'.repeat(2_000_000)}"}`, 'is larger than'],
  ])('gets no login from an invalid file, which is logged once without its content', async (text, trouble) => {
    const { logins, logged, path, write } = open(text);
    const found = await logins.find('acme.example/a');
    await logins.find('acme.example/a');
    expect(found).toMatchObject({ login: null, isUnusable: true });
    expect(found.remark).toContain(`${path} ${trouble}`);
    const lines = logged().trim().split('\n');
    expect(lines).toHaveLength(1);
    expect(JSON.parse(lines[0] ?? '')).toMatchObject({ file: path, trouble: expect.stringContaining(trouble) });
    expect(`${found.remark}${lines.join('')}`).not.toMatch(/secret-1|YWRh/);
    write({ auths: { 'acme.example': { auth: adaAuth } } });
    expect((await logins.find('acme.example/a')).login).not.toBeNull();
    expect(logged()).toBe('');
  });

  it('gets a remark, and a log line, when the path is not a file', async () => {
    const { logins, path, logged } = open(null);
    mkdirSync(path);
    expect((await logins.find('a')).remark).toContain('is not a file');
    expect(logged()).toContain('cannot read the registry logins');
  });

  it('gets a remark, and no log line, when there is no file or folder', async () => {
    const { logins, path, logged } = open(null);
    const none = { login: null, remark: `Pulled without a login: there is no ${path}.`, isUnusable: false };
    expect(await logins.find('acme.example/a')).toEqual(none);
    expect(logged()).toBe('');
    const homeless = createRegistryLogins({ folder: null, log: pino({ level: 'silent' }) });
    expect((await homeless.find('a')).remark).toContain('DOCKER_CONFIG is not set');
  });
});

describe('the login of a registry', () => {
  it.each<[string, string, object, object]>([
    ['as docker login writes it', 'acme.example/a/b:1', { 'acme.example': { auth: adaAuth } }, {}],
    ['with a port', 'acme.example:5000/a@sha256:00', { 'acme.example:5000': { auth: adaAuth } }, {}],
    ['as an address', 'acme.example/a', { 'https://acme.example/v1/': { auth: adaAuth } }, {}],
    ['of localhost', 'localhost/a', { localhost: { auth: adaAuth } }, {}],
    ['of Docker Hub', 'vllm/vllm-openai:v0.32.0', { [hub]: { auth: adaAuth } }, { serveraddress: hub }],
    ['of Docker Hub by its name', 'docker.io/a/b', { 'docker.io': { auth: adaAuth } }, { serveraddress: hub }],
    ['in the clear', 'acme.example/a', { 'acme.example': { username: 'ada', password: 'secret-1' } }, {}],
    ['padded', 'acme.example/a', { 'acme.example': { auth: base64('ada:secret-1\0\0') } }, {}],
    [
      'before an address of the same host',
      'acme.example/a',
      { 'https://acme.example/v2/': { auth: base64('bob:secret-2') }, 'acme.example': { auth: adaAuth } },
      {},
    ],
  ])('is found %s', async (_, image, auths, over) => {
    const { logins, path } = open({ auths, credsStore: 'pass', HttpHeaders: { x: 'y' } });
    const { login, remark, isUnusable } = await logins.find(image);
    const serveraddress = image.slice(0, image.indexOf('/'));
    expect(login).toEqual({ serveraddress, username: 'ada', password: 'secret-1', ...over });
    expect(isUnusable).toBe(false);
    expect(remark).toBe(`Pulled with the login for ${registryOf(image)} in ${path}.`);
  });

  it('may be an identity token with its user', async () => {
    const { logins } = open({ auths: { 'acme.example': { auth: base64('0000:'), identitytoken: 'token-1' } } });
    const login = { serveraddress: 'acme.example', username: '0000', identitytoken: 'token-1' };
    expect((await logins.find('acme.example/a')).login).toEqual(login);
  });

  it('is read again when the file changes', async () => {
    const { logins, write } = open({ auths: { 'acme.example': { auth: adaAuth } } });
    expect((await logins.find('acme.example/a')).login?.password).toBe('secret-1');
    write({ auths: { 'acme.example': { auth: base64('ada:secret-2:x') } } });
    expect((await logins.find('acme.example/a')).login?.password).toBe('secret-2:x');
  });

  it('is removed from error messages of Docker', () => {
    const login = { serveraddress: 'acme.example', username: 'ada', password: 'se.*t', identitytoken: 'se.*t-2' };
    const said = `denied se.*t-2 for ada with se.*t or ${base64('ada:se.*t')}`;
    expect(hideLogin(said, login)).toBe('denied *** for ada with *** or ***');
    expect(hideLogin(said, null)).toBe(said);
  });
});

describe('the folder of config.json', () => {
  it.each([
    [{}, null],
    [{ HOME: '/home/ada' }, '/home/ada/.docker'],
    [{ HOME: '/home/ada', DOCKER_CONFIG: '' }, '/home/ada/.docker'],
    [{ HOME: '/home/ada', DOCKER_CONFIG: '/run/docker-config' }, '/run/docker-config'],
  ])('with %j is %j', (environment, folder) => {
    expect(parseConfig(environment).docker.configDir).toBe(folder);
  });
});

describe('the registry of an image', () => {
  it.each([
    ['ubuntu', 'docker.io'],
    ['ubuntu:22.04', 'docker.io'],
    ['ubuntu@sha256:00', 'docker.io'],
    ['vllm/vllm-openai:v0.32.0', 'docker.io'],
    ['docker.io/library/ubuntu', 'docker.io'],
    ['index.docker.io/vllm/a', 'docker.io'],
    ['localhost/a', 'localhost'],
    ['localhost:5000/a', 'localhost:5000'],
    ['registry:5000/a', 'registry:5000'],
    ['127.0.0.1/a/b', '127.0.0.1'],
    ['[::1]:5000/a', '[::1]:5000'],
    ['ghcr.io/acme/engine:v1', 'ghcr.io'],
    ['ACME/engine', 'ACME'],
  ])('of %s is %s', (image, registry) => {
    expect(registryOf(image)).toBe(registry);
  });
});

describe('the code of a failed pull', () => {
  it.each([
    ['Get "http://r/v2/": no basic auth credentials', 'IMAGE_DENIED', true],
    ['unauthorized: authentication required', 'IMAGE_DENIED', true],
    ['unexpected status from HEAD request to https://r/v2/a/manifests/v1: 401 Unauthorized', 'IMAGE_DENIED', true],
    [
      "pull access denied for acme/a, repository does not exist or may require 'docker login': denied: requested access to the resource is denied",
      'IMAGE_NOT_FOUND',
      true,
    ],
    ['toomanyrequests: You have reached your pull rate limit', 'IMAGE_PULL_FAILED', true],
    ['manifest for acme/a:v9 not found: manifest unknown', 'IMAGE_NOT_FOUND', false],
    ['dial tcp 10.0.0.1:443: connect: connection refused', 'IMAGE_PULL_FAILED', false],
  ])('%s', (reason, code, isAboutLogin) => {
    expect(startErrorCode(new DockerError('pull', null, reason), 'image')).toBe(code);
    expect(concernsLogin(reason)).toBe(isAboutLogin);
  });
});
