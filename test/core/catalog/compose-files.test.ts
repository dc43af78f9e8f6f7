import { existsSync, globSync, readFileSync } from 'node:fs';
import { parseEnv } from 'node:util';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { parseConfig, parseDockerGateConfig } from '#base/config.ts';
import { loadEngineFiles } from '#core/catalog/catalog.ts';

const root = new URL('../../../', import.meta.url).pathname;
const folder = `${root}compose/`;
const files = globSync('compose*.yaml', { cwd: folder }).toSorted();

interface Service {
  readonly environment?: Readonly<Record<string, string | number | null>>;
  readonly volumes?: readonly string[];
  readonly image?: string;
}

interface ComposeFile {
  readonly services: Readonly<Record<string, Service>>;
}

function textOf(name: string): string {
  return readFileSync(`${folder}${name}`, 'utf8');
}

const example = parseEnv(textOf('env.example'));
const secrets = { POSTGRES_PASSWORD: 'a'.repeat(48), HEADGATE_BOOTSTRAP_KEY: 'b'.repeat(48), GRAFANA_PASSWORD: 'c' };

/** As docker compose fills in `${NAME}`, `${NAME:-default}` and `${NAME:?message}`. */
function fillIn(text: string, values: Readonly<Record<string, string | undefined>>): string {
  return text.replaceAll(/\$\{(\w+)(?::([-?])([^}]*))?\}/g, (_all, name: string, kind?: string, rest = '') => {
    const value = values[name];
    if (value !== undefined && value !== '') return value;
    if (kind === '?') throw new Error(`${name}: ${rest}`);
    return rest;
  });
}

function read(name: string): ComposeFile {
  return parse(fillIn(textOf(name), { ...example, ...secrets })) as ComposeFile;
}

function environmentOf(service: Service | undefined): Record<string, string> {
  return Object.fromEntries(
    Object.entries(service?.environment ?? {}).map(([name, value]) => [name, String(value ?? '')]),
  );
}

describe('env.example', () => {
  it('refuses to start without the secrets that are to be set', () => {
    expect(() => fillIn(textOf('compose.yaml'), example)).toThrow('POSTGRES_PASSWORD: set it in compose/.env');
  });

  it('names every variable that the compose files leave to the operator without a default', () => {
    const needed = files.flatMap((name) => [...textOf(name).matchAll(/\$\{(\w+)(?::\?[^}]*)?\}/g)]);
    for (const [, name = ''] of needed) expect(Object.keys(example)).toContain(name);
  });

  it('is understood by the gateway, with what the compose file adds', () => {
    const environment = { ...example, ...secrets, ...environmentOf(read('compose.yaml').services['gateway']) };
    expect(parseConfig(environment)).toMatchObject({
      http: { host: '0.0.0.0', port: 8080 },
      docker: { host: 'tcp://docker-gate:2375' },
      metrics: { port: 9464 },
      bootstrap: { email: 'admin@example.com', key: secrets.HEADGATE_BOOTSTRAP_KEY },
    });
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
    });
    expect(parseDockerGateConfig({ ...environment, HEADGATE_DOCKER_SWARM: 'true' }).allowsSwarm).toBe(true);
  });
});

describe('the compose files', () => {
  it('give the Docker socket to its door alone', () => {
    const holders = files.flatMap((name) =>
      Object.entries(read(name).services).filter(([, { volumes }]) => (volumes ?? []).join().includes('docker.sock')),
    );
    expect(holders.map(([name]) => name)).toEqual(['docker-gate']);
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
});
