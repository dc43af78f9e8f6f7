import { existsSync, globSync, readFileSync } from 'node:fs';
import { BlockList } from 'node:net';
import { parseEnv } from 'node:util';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { parseConfig, parseDockerGateConfig } from '#base/config/read-config.ts';
import * as sections from '#base/config/sections.ts';
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
  readonly scale?: number;
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

/** @param settings of compose/.env that are not as in env.example */
function read(name: string, settings: Readonly<Record<string, string>> = {}): ComposeFile {
  return parse(fillIn(textOf(name), { ...example, ...settings })) as ComposeFile;
}

function environmentOf(service: Service | undefined): Record<string, string> {
  return Object.fromEntries(
    Object.entries(service?.environment ?? {}).map(([name, value]) => [name, String(value ?? example[name] ?? '')]),
  );
}

const addressOf = (service: Service | undefined, network: string): string =>
  service?.networks?.[network]?.ipv4_address ?? '';

describe('env.example', () => {
  it('contains no secret, and nothing that must be filled in', () => {
    expect(Object.keys(example).filter((name) => /PASSWORD|KEY|TOKEN|SECRET(?!S_DIR)/.test(name))).toEqual([]);
    const needed = files.flatMap((name) => textOf(name).match(/\$\{\w+(:?\?[^}]*)?\}/g) ?? []);
    // Both stand in comments.
    expect(new Set(needed)).toEqual(new Set(['${NAME}', '${HF_TOKEN}']));
  });

  it('lists all settings that the compose files use, except those of the gateway', () => {
    const filled = files.flatMap((name) =>
      [...textOf(name).matchAll(/\$\{(\w+):-/g)].map(([, setting = '']) => setting),
    );
    const ofFiles = (names: readonly string[]) => new Set(names.filter((name) => !/^(HEADGATE_|LOG_)/.test(name)));
    expect(ofFiles(Object.keys(example))).toEqual(ofFiles(filled));
  });

  it('is valid for the gateway together with the compose file', () => {
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

  it.for([
    { file: 'compose.platform.yaml', network: 'web', proxy: 'caddy' },
    { file: 'compose.gateways.yaml', network: 'proxy', proxy: 'proxy' },
  ])('gives the proxy of $file a fixed address in its network', ({ file, network, proxy }) => {
    const { services, networks } = read(file);
    const { subnet = '' } = networks?.[network]?.ipam?.config[0] ?? {};
    const [base = '', bits] = subnet.split('/');
    const inSubnet = new BlockList();
    inSubnet.addSubnet(base, Number(bits));
    expect(inSubnet.check(addressOf(services[proxy], network))).toBe(true);
    // By a name that the gateway has only in that network: from another one the proxy would come with another address.
    const { HEADGATE_WEB_URL: url, GATEWAY_ADDRESS: address } = environmentOf(services[proxy]);
    const { hostname } = new URL(url ?? `http://${address}`);
    expect(services['gateway']?.networks?.[network]?.aliases).toContain(hostname);
    expect(Object.keys(read('compose.yaml').services)).not.toContain(hostname);
  });

  it.for([
    ['compose.gateways.yaml', 'compose.platform.yaml'],
    ['compose.platform.yaml', 'compose.gateways.yaml'],
  ])('makes the gateway trust both proxies and HEADGATE_TRUSTED_PROXIES, with %s before %s', (overlays) => {
    const proxies = [
      addressOf(read('compose.gateways.yaml').services['proxy'], 'proxy'),
      addressOf(read('compose.platform.yaml').services['caddy'], 'web'),
    ];
    const trusted = (given: string) => {
      const environments = overlays.map((name) => {
        return environmentOf(read(name, { HEADGATE_TRUSTED_PROXIES: given }).services['gateway']);
      });
      return parseConfig({ ...Object.assign({}, ...environments), PORT: '0' }).http.trustedProxies;
    };
    expect(trusted('')).toEqual(proxies);
    expect(trusted('192.0.2.0/24, ::1')).toEqual([...proxies, '192.0.2.0/24', '::1']);
  });

  it('is valid for docker-gate', () => {
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
  it('mount the Docker socket only in docker-gate', () => {
    const holders = files.flatMap((name) =>
      Object.entries(read(name).services).filter(([, { volumes }]) => (volumes ?? []).join().includes('docker.sock')),
    );
    expect(holders.map(([name]) => name)).toEqual(['docker-gate']);
  });

  it('pass each setting of the gateway to it, and nothing else', () => {
    const variables = Object.values(sections).flatMap((section) => Object.keys(section.variables));
    const { environment = {}, env_file: envFile } = read('compose.yaml').services['gateway'] ?? {};
    expect(envFile).toBeUndefined();
    // Those that are secrets are files; Docker's own folder is for who needs it; nobody is at home there.
    const given = Object.keys(environment).map((name) =>
      name === 'HEADGATE_STATEMENT_KEY_FILE' ? name : name.replace(/_FILE$/, ''),
    );
    const others = ['POSTGRES_PASSWORD', 'HEADGATE_API_KEY'];
    // Prometheus would ask only the first of several workers.
    const left = ['HOME', 'DOCKER_CONFIG', 'HEADGATE_DATA_DIR', 'HEADGATE_BOOTSTRAP_PASSWORD', 'HEADGATE_WORKERS'];
    expect(given.toSorted()).toEqual([...variables.filter((name) => !left.includes(name)), ...others].toSorted());
  });

  it('use DATABASE_URL and REDIS_URL of compose/.env instead of their own stores, which can be scaled to 0', () => {
    const urls = {
      DATABASE_URL: 'postgres://headgate@db.example.com:5432/headgate',
      REDIS_URL: 'redis://redis.example.com:6379',
    };
    const { services } = read('compose.yaml', urls);
    expect(environmentOf(services['gateway'])).toMatchObject(urls);
    expect(environmentOf(read('compose.yaml').services['gateway'])).toMatchObject({
      DATABASE_URL: 'postgres://headgate@postgres:5432/headgate',
      REDIS_URL: 'redis://redis:6379',
    });
    const others = Object.entries(read('compose.own-stores.yaml').services);
    expect(others.map(([name, { scale }]) => [name, scale])).toEqual([
      ['postgres', 0],
      ['redis', 0],
      ['backup', 0],
    ]);
  });

  it('work with the compose file of the README, whose secrets replace settings', () => {
    const [, text = ''] = /### A compose file of your own\n[^]*?```yaml\n([^]*?)```/.exec(textOf('README.md')) ?? [];
    const own = parse(text) as ComposeFile;
    const { environment = {}, secrets = [] } = own.services['gateway'] ?? {};
    const merged = { ...environmentOf(read('compose.yaml').services['gateway']), ...environment };
    expect(secrets).toEqual(Object.keys(own.secrets ?? {}));
    expect(new Set(secrets.map((name) => `/run/secrets/${name}`))).toEqual(
      new Set(Object.values(environment).filter((value) => value !== '')),
    );
    const named = Object.keys(environment).filter((name) => name.endsWith('_FILE'));
    expect(named).toContain('REDIS_URL_FILE');
    for (const name of named) expect(merged[name.replace(/_FILE$/, '')] ?? '', name).toBe('');
  });

  it('set some gateway settings themselves, and the README names all of them', () => {
    const { environment = {} } = read('compose.yaml', { HEADGATE_DRAIN_SECONDS: '' }).services['gateway'] ?? {};
    const filled = ['DATABASE_URL', 'REDIS_URL', 'HEADGATE_DRAIN_SECONDS'];
    const fixed = Object.keys(environment).filter((name) => environment[name] !== null && !filled.includes(name));
    const [, sentence = ''] =
      /\n([^\n]*compose\.yaml itself sets[^\n]*)/.exec(textOf('README.md').replaceAll('`', '')) ?? [];
    expect(new Set(sentence.match(/\b(?:[A-Z]+_)+[A-Z]+\b|\bHOST\b|\bPORT\b/g))).toEqual(new Set(fixed));
  });

  it('limit logs, memory, CPU and processes of every service', () => {
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

  it('pass secrets only as files', () => {
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

  it('pin the version of every image', () => {
    const images = files.flatMap((name) => Object.values(read(name).services).flatMap(({ image }) => image ?? []));
    expect(images.length).toBeGreaterThan(4);
    expect(images.filter((image) => !/:(?!latest)[\w.-]+$/.test(image))).toEqual([]);
  });

  it('mount only existing files and folders', () => {
    const sources = files.flatMap((name) =>
      Object.values(read(name).services).flatMap(({ volumes }) =>
        (volumes ?? []).map((text) => text.split(':')[0] ?? ''),
      ),
    );
    const folders = sources.filter((source) => source.startsWith('.'));
    expect(folders.length).toBeGreaterThan(3);
    for (const source of folders) expect(existsSync(`${folder}${source}`), source).toBe(true);
  });

  it('let engines mount every volume that the engine files of Headgate use', () => {
    const { volumes } = parseDockerGateConfig(environmentOf(read('compose.yaml').services['docker-gate']));
    const shipped = [`${folder}engines`, `${root}engines/examples`].map((path) => loadEngineFiles(path));
    const mounted = shipped.flatMap((loaded) =>
      loaded.ok ? loaded.engines.flatMap(({ driver }) => ('volumes' in driver ? driver.volumes : [])) : [],
    );
    expect(mounted.length).toBeGreaterThan(8);
    expect(new Set(mounted.map(({ source }) => source))).toEqual(new Set(volumes.map(({ source }) => source)));
  });

  it('come with valid engine files for GPUs', () => {
    const loaded = loadEngineFiles(`${folder}engines`, { env: {} });
    expect(loaded).toMatchObject({ ok: true });
  });

  it('reject a VLLM_IMAGE without a fixed version, and use one with a fixed version', () => {
    const load = (image: string) => loadEngineFiles(`${folder}engines`, { env: { VLLM_IMAGE: image } });
    const refused = load('registry.example:5000/own/engine:latest');
    expect(refused).toMatchObject({
      ok: false,
      problems: [{ field: 'image', message: expect.stringContaining('can change') }],
    });
    for (const [given, used] of [
      ['registry.example:5000/own/engine:v1', 'registry.example:5000/own/engine:v1'],
      ['', 'vllm/vllm-openai:v0.32.0'],
    ] as const) {
      const loaded = load(given);
      expect(loaded.ok && loaded.engines).toMatchObject([{ kind: 'vllm', driver: { image: used } }]);
    }
  });
});
