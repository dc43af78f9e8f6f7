import { existsSync, globSync, readFileSync } from 'node:fs';
import { BlockList } from 'node:net';
import { parseEnv } from 'node:util';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { parseConfig, parseDockerGateConfig } from '#base/config.ts';
import * as sections from '#base/config-sections.ts';
import { loadEngineFiles } from '#core/catalog/catalog.ts';

const root = new URL('../../../', import.meta.url).pathname;
const folder = `${root}compose/`;
const files = globSync('compose*.yaml', { cwd: folder }).toSorted();

interface Service {
  readonly environment?: Readonly<Record<string, string | number | null>>;
  readonly volumes?: readonly string[];
  readonly image?: string;
  readonly logging?: object;
  readonly mem_limit?: string;
  readonly cpu_quota?: string;
  readonly pids_limit?: number;
  readonly env_file?: unknown;
  readonly secrets?: readonly string[];
  readonly networks?: Readonly<
    Record<string, { readonly aliases?: readonly string[]; readonly ipv4_address?: string }>
  >;
}

interface ComposeFile {
  readonly services: Readonly<Record<string, Service>>;
  readonly secrets?: Readonly<Record<string, { readonly file: string }>>;
  readonly networks?: Readonly<
    Record<string, { readonly ipam?: { readonly config: readonly { readonly subnet: string }[] } }>
  >;
}

function textOf(name: string): string {
  return readFileSync(`${folder}${name}`, 'utf8');
}

const example = parseEnv(textOf('env.example'));

/** As docker compose fills in `${NAME}` and `${NAME:-default}`. */
function fillIn(text: string, values: Readonly<Record<string, string | undefined>>): string {
  return text.replaceAll(/\$\{(\w+)(?::-([^}]*))?\}/g, (_all, name: string, rest = '') => {
    const value = values[name];
    if (value !== undefined && value !== '') return value;
    return rest;
  });
}

function read(name: string): ComposeFile {
  return parse(fillIn(textOf(name), example)) as ComposeFile;
}

function environmentOf(service: Service | undefined): Record<string, string> {
  return Object.fromEntries(
    Object.entries(service?.environment ?? {}).map(([name, value]) => [name, String(value ?? example[name] ?? '')]),
  );
}

describe('env.example', () => {
  it('holds no secret, and nothing that must be filled in', () => {
    expect(Object.keys(example).filter((name) => /PASSWORD|KEY|TOKEN|SECRET/.test(name))).toEqual([]);
    const needed = files.flatMap((name) => textOf(name).match(/\$\{\w+(:?\?[^}]*)?\}/g) ?? []);
    // Both stand in comments.
    expect(new Set(needed)).toEqual(new Set(['${NAME}', '${HF_TOKEN}']));
  });

  it('names the image of every service', () => {
    const named = files.flatMap((name) => [...textOf(name).matchAll(/\$\{(\w+_IMAGE):-/g)].map(([, image]) => image));
    const own = new Set(named.filter((name) => name !== 'GATEWAY_IMAGE'));
    expect(new Set(Object.keys(example).filter((name) => name.endsWith('_IMAGE')))).toEqual(own);
  });

  it('is understood by the gateway, with what the compose file adds', () => {
    const {
      HEADGATE_BOOTSTRAP_KEY_FILE: key,
      HEADGATE_API_KEY_FILE: same,
      HEADGATE_BACKUP_PASSPHRASE_FILE: passphrase,
      ...environment
    } = environmentOf(read('compose.yaml').services['gateway']);
    expect([key, same]).toEqual(['/run/secrets/bootstrap_key', '/run/secrets/bootstrap_key']);
    expect(passphrase).toBe('/run/secrets/backup_passphrase');
    expect(parseConfig({ ...environment, HEADGATE_BOOTSTRAP_KEY: 'b'.repeat(48) })).toMatchObject({
      http: { host: '0.0.0.0', port: 8080 },
      docker: { host: 'tcp://docker-gate:2375' },
      metrics: { port: 9464 },
      bootstrap: { email: 'admin@example.com', key: 'b'.repeat(48) },
    });
  });

  it('lets the gateway believe Caddy, at the one address that it has, and whom else the operator names', () => {
    const { services, networks } = read('compose.platform.yaml');
    const { gateway, caddy } = services;
    const address = caddy?.networks?.['web']?.ipv4_address ?? '';
    const inSubnet = new BlockList();
    const [base = '', bits] = (networks?.['web']?.ipam?.config[0]?.subnet ?? '').split('/');
    inSubnet.addSubnet(base, Number(bits));
    expect(inSubnet.check(address)).toBe(true);
    const trusted = (given: string) => {
      const text = fillIn(textOf('compose.platform.yaml'), { ...example, HEADGATE_TRUSTED_PROXIES: given });
      const file = parse(text) as ComposeFile;
      return parseConfig({ ...environmentOf(file.services['gateway']), PORT: '0' }).http.trustedProxies;
    };
    expect(trusted('')).toEqual([address]);
    expect(trusted('192.0.2.0/24, ::1')).toEqual([address, '192.0.2.0/24', '::1']);
    // By a name that the gateway has in that network alone: from another one Caddy would come with another address.
    const { hostname } = new URL(environmentOf(caddy)['HEADGATE_WEB_URL'] ?? '');
    expect(gateway?.networks?.['web']?.aliases).toContain(hostname);
    expect(Object.keys(read('compose.yaml').services)).not.toContain(hostname);
  });

  it('is understood by the door to the Docker socket', () => {
    const environment = environmentOf(read('compose.yaml').services['docker-gate']);
    expect(parseDockerGateConfig(environment)).toMatchObject({
      images: ['vllm/*'],
      binds: [],
      volumes: [
        { source: 'hf-cache', isReadOnly: false },
        { source: 'vllm-cache', isReadOnly: false },
      ],
      allowsPorts: false,
      allowsSwarm: false,
      runImages: [],
      runNetworks: [],
    });
    expect(parseDockerGateConfig({ ...environment, HEADGATE_DOCKER_SWARM: 'true' }).allowsSwarm).toBe(true);
  });
});

/** Names a file of the operator's own. */
const keptElsewhere = new Set([
  'HEADGATE_STATEMENT_KEY_FILE',
  'HEADGATE_PLATFORM_KEY_FILE',
  'HEADGATE_OIDC_CLIENT_SECRET_FILE',
]);

describe('the compose files', () => {
  it('give the Docker socket to its door alone', () => {
    const holders = files.flatMap((name) =>
      Object.entries(read(name).services).filter(([, { volumes }]) => (volumes ?? []).join().includes('docker.sock')),
    );
    expect(holders.map(([name]) => name)).toEqual(['docker-gate']);
  });

  it('give the gateway each of its own settings, and nothing else', () => {
    const variables = Object.values(sections).flatMap((section) => Object.keys(section.variables));
    const { environment = {}, env_file: envFile } = read('compose.yaml').services['gateway'] ?? {};
    expect(envFile).toBeUndefined();
    // Those that are secrets are files; Docker's own folder is for who needs it; nobody is at home there.
    const given = Object.keys(environment).map((name) =>
      name === 'HEADGATE_STATEMENT_KEY_FILE' ? name : name.replace(/_FILE$/, ''),
    );
    const others = ['POSTGRES_PASSWORD', 'HEADGATE_API_KEY'];
    const left = ['HOME', 'DOCKER_CONFIG', 'HEADGATE_DATA_DIR', 'HEADGATE_BOOTSTRAP_PASSWORD'];
    expect(given.toSorted()).toEqual([...variables.filter((name) => !left.includes(name)), ...others].toSorted());
  });

  it('bound what every service may write, use and start', () => {
    for (const name of files) {
      // Files that only add to a service of the first name no image.
      const services = Object.entries(read(name).services).filter(([, { image }]) => image !== undefined);
      for (const [service, { logging, mem_limit: memory, cpu_quota: quota, pids_limit: pids }] of services) {
        expect(logging, service).toEqual({ driver: 'json-file', options: { 'max-size': '10m', 'max-file': '5' } });
        expect(memory, service).toMatch(/^\d+[mg]$/);
        expect(Number(quota), service).toBeGreaterThanOrEqual(100_000);
        expect(pids, service).toBeGreaterThanOrEqual(128);
      }
    }
  });

  it('hand secrets over as files, and in no other way', () => {
    for (const name of files) {
      const { services, secrets: known = {} } = read(name);
      for (const [service, { environment = {}, secrets: used = [] }] of Object.entries(services)) {
        const secret = Object.entries(environment).filter(
          ([variable]) => /(PASSWORD|TOKEN|SECRET|_KEY)(_*FILE)?$/.test(variable) && !keptElsewhere.has(variable),
        );
        for (const [variable, value] of secret) {
          expect(variable, service).toMatch(/_FILE$/);
          expect(used, service).toContain(String(value).replace('/run/secrets/', ''));
        }
        for (const each of used) expect(known[each]?.file, each).toBe(`./secrets/${each}`);
      }
    }
  });

  it('pin every image', () => {
    const images = files.flatMap((name) => Object.values(read(name).services).flatMap(({ image }) => image ?? []));
    expect(images.length).toBeGreaterThan(4);
    expect(images.filter((image) => !/:(?!latest)[\w.-]+$/.test(image))).toEqual([]);
  });

  it('mount only what is there', () => {
    const sources = files.flatMap((name) =>
      Object.values(read(name).services).flatMap(({ volumes }) =>
        (volumes ?? []).map((text) => text.split(':')[0] ?? ''),
      ),
    );
    const folders = sources.filter((source) => source.startsWith('.'));
    expect(folders.length).toBeGreaterThan(3);
    for (const source of folders) expect(existsSync(`${folder}${source}`), source).toBe(true);
  });

  it('let engines mount what the engine files that come with Headgate mount', () => {
    const { volumes } = parseDockerGateConfig(environmentOf(read('compose.yaml').services['docker-gate']));
    const shipped = [`${folder}engines`, `${root}engines/examples`].map((path) => loadEngineFiles(path));
    const mounted = shipped.flatMap((loaded) =>
      loaded.ok ? loaded.engines.flatMap(({ driver }) => ('volumes' in driver ? driver.volumes : [])) : [],
    );
    expect(mounted.length).toBeGreaterThan(8);
    expect(new Set(mounted.map(({ source }) => source))).toEqual(new Set(volumes.map(({ source }) => source)));
  });

  it('come with engines for GPUs that can be used as they are', () => {
    const loaded = loadEngineFiles(`${folder}engines`, { env: {} });
    expect(loaded).toMatchObject({ ok: true });
  });

  it('refuse an image of the operator’s own that has no version, and take one that has', () => {
    const load = (image: string) => loadEngineFiles(`${folder}engines`, { env: { VLLM_IMAGE: image } });
    const refused = load('registry.example:5000/own/engine:latest');
    expect(refused).toMatchObject({
      ok: false,
      problems: [{ field: 'image', message: expect.stringContaining('moves') }],
    });
    for (const [given, used] of [
      ['registry.example:5000/own/engine:v1', 'registry.example:5000/own/engine:v1'],
      ['', 'vllm/vllm-openai:v0.29.0'],
    ] as const) {
      const loaded = load(given);
      expect(loaded.ok && loaded.engines).toMatchObject([{ kind: 'vllm', driver: { image: used } }]);
    }
  });
});
