import { spawn } from 'node:child_process';
import { chmod, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startGateway, type TestGateway } from '#test/gateway.ts';

/** Requests that schemathesis makes from the OpenAPI document: every answer fits the document, whoever asks. */

const folder = new URL('.', import.meta.url).pathname;
const routes = String.raw`^/v1/(users|projects|clusters|stacks|runs|billing|orgs)(/|$)`;

let gateway: TestGateway;
let work = '';
const keys = { platform: '', management: '', inference: '' };

async function made(path: string, body: object, key = keys.platform): Promise<{ id: string } & Record<string, string>> {
  const answer = await gateway.request(path, { body, key });
  const asked = await answer.text();
  if (!answer.ok) throw new Error(`${path}: ${answer.status} ${asked}`);
  return JSON.parse(asked);
}

/** Ids of what is there, so that not every request is about nothing; what deletes is given ids that it makes up. */
async function writeConfig(): Promise<void> {
  const organization = await made('/v1/organizations', { name: 'Fuzzed' });
  keys.management = organization['management_key'] ?? '';
  keys.inference = (await made('/v1/keys', {}, keys.management))['secret'] ?? '';
  const cluster = await made('/v1/clusters', { name: 'research', organization_id: organization.id });
  const user = { name: 'Ada', email: 'ada@example.com', password: 'correct horse' };
  const ids: Readonly<Record<string, string>> = {
    clusters: cluster.id,
    orgs: organization.id,
    users: (await made('/v1/users', user, keys.management)).id,
    projects: (await made('/v1/projects', { name: 'Search' }, keys.management)).id,
    'billing/rate-cards': (
      await made('/v1/billing/rate-cards', { hardware_profile: 'h100', currency: 'USD', gpu_hour: '2.49' })
    ).id,
    'billing/conversion-rates': (await made('/v1/billing/conversion-rates', { from: 'USD', to: 'EUR', rate: '0.9' }))
      .id,
  };
  const tables = Object.entries(ids).map(
    ([path, id]) =>
      `[[operations]]\ninclude-path-regex = '^/v1/${path}/\\{id\\}'\nexclude-method = "DELETE"\n` +
      `parameters = { "path.id" = "${id}" }\n`,
  );
  // Prometheus is among what is shipped.
  const stack = `[[operations]]\ninclude-path-regex = '^/v1/stacks/\\{name\\}'\nexclude-method = "DELETE"\nparameters = { "path.name" = "monitoring" }\n`;
  await writeFile(join(work, 'schemathesis.toml'), [...tables, stack].join('\n'));
}

beforeAll(async () => {
  work = await mkdtemp(join(tmpdir(), 'hg-schemathesis-'));
  // Stacks can be applied: a made request may be a right one. Where the gateway is root, runs have a user of their own.
  await chmod(work, 0o711);
  const runs = join(work, 'runs');
  await mkdir(runs);
  gateway = await startGateway({ env: { HEADGATE_TRUSTED_PROXIES: '127.0.0.1', HEADGATE_RUNS_DIR: runs } });
  keys.platform = gateway.key;
  await writeConfig();
});

afterAll(async () => {
  await gateway.stop();
  await rm(work, { recursive: true, force: true, maxRetries: 50, retryDelay: 100 });
});

interface Plan {
  readonly key: string | null;
  /** An address of its own: each has its hour. */
  readonly address: string;
  readonly phases: string;
  /** Made requests of each route. */
  readonly examples: number;
}

/** Output of a run, and its exit code. */
async function run({ key, address, phases, examples }: Plan): Promise<{ output: string; code: number | null }> {
  const document = new URL('/openapi.json', gateway.url).href;
  const headers = [`X-Forwarded-For: ${address}`, ...(key === null ? [] : [`Authorization: Bearer ${key}`])];
  const args = ['--config-file', join(work, 'schemathesis.toml'), 'run', document, '--no-color'];
  args.push('--include-path-regex', routes, '--phases', phases, '--max-examples', String(examples));
  // A document cannot describe all rejections, such as of a name that exists.
  args.push('--exclude-checks', 'positive_data_acceptance', '--warnings', 'off', '--continue-on-failure');
  args.push('--seed', '1', '--generation-deterministic');
  for (const header of headers) args.push('--header', header);
  const child = spawn('schemathesis', args, {
    cwd: work,
    env: { ...process.env, SCHEMATHESIS_HOOKS: 'checks', PYTHONDONTWRITEBYTECODE: '1', PYTHONPATH: folder },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const ended = new Promise<number | null>((resolve) => child.once('close', resolve));
  return { output: await text(child.stdout), code: await ended };
}

describe('API responses, by Schemathesis', () => {
  it.each<[string, () => Plan]>([
    [
      'a platform admin’s management key',
      () => ({ key: keys.platform, address: '10.0.0.1', phases: 'examples,coverage,fuzzing', examples: 5 }),
    ],
    ['a management key', () => ({ key: keys.management, address: '10.0.0.2', phases: 'fuzzing', examples: 3 })],
    ['an inference key', () => ({ key: keys.inference, address: '10.0.0.3', phases: 'fuzzing', examples: 3 })],
    ['no key', () => ({ key: null, address: '10.0.0.4', phases: 'fuzzing', examples: 2 })],
  ])('match the OpenAPI document, leak nothing and have no 5xx, with %s', async (_, plan) => {
    const { output, code } = await run(plan());
    // Its tables of contents say less than what failed.
    expect(code, output.slice(Math.max(0, output.indexOf('= FAILURES ='))).slice(0, 4000)).toBe(0);
    expect(output).toMatch(/Test cases:\n {2}\d{2,}/);
    const faults = gateway.logLines.filter((line) => line.includes('"level":50'));
    expect(faults).toEqual([]);
  });
});
