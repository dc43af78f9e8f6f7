import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs, promisify } from 'node:util';
import { packZip } from '#base/zip.ts';
import { median } from './statistics.ts';

/**
 * `npm run bench:runs -- --tries 7 --lines 20000 --at-once 8`: how long runs of stacks take at the gateway of
 * HEADGATE_URL, for the platform administrator whose management key is in HEADGATE_API_KEY. The smallest stack is
 * applied `--tries` times, each on a cluster of its own; a stack that prints `--lines` lines is applied once; then
 * `--at-once` runs are asked for together, of which the gateway's HEADGATE_RUNS_AT_ONCE go on at a time. The same
 * modules are applied by HEADGATE_TERRAFORM_BIN (`terraform`) without a gateway, on this machine: figures are ratios
 * to that. What it makes there is deleted.
 */

const { values } = parseArgs({
  options: {
    tries: { type: 'string', default: '7' },
    lines: { type: 'string', default: '20000' },
    'at-once': { type: 'string', default: '8' },
  },
});

function whole(name: keyof typeof values): number {
  const number = Number(values[name]);
  if (!Number.isSafeInteger(number) || number < 1) throw new Error(`--${name} must be a whole number from 1`);
  return number;
}

const [tries, lines, atOnce] = [whole('tries'), whole('lines'), whole('at-once')];
const base = process.env['HEADGATE_URL'] ?? 'http://127.0.0.1:8080';
const authorization = `Bearer ${process.env['HEADGATE_API_KEY'] ?? ''}`;
const terraform = process.env['HEADGATE_TERRAFORM_BIN'] ?? 'terraform';
const run = promisify(execFile);
const mark = `bench-${Date.now().toString(36)}`;

const modules = {
  small:
    'resource "terraform_data" "one" {\n  input = "one"\n}\noutput "one" {\n  value = terraform_data.one.output\n}\n',
  lines: `resource "terraform_data" "one" {
  provisioner "local-exec" {
    command = "seq -f 'line %.0f of a program that a module runs' ${lines}"
  }
}
`,
} as const;
type Module = keyof typeof modules;

interface Run {
  readonly id: string;
  readonly status: string;
  readonly ended_at: string | null;
  readonly failure_message: string | null;
}

async function ask(method: string, path: string, body?: unknown): Promise<unknown> {
  const isForm = body instanceof FormData;
  const headers = { authorization, ...(body === undefined || isForm ? {} : { 'content-type': 'application/json' }) };
  const text = body === undefined ? null : isForm ? body : JSON.stringify(body);
  const answer = await fetch(new URL(path, base), { method, headers, body: text });
  const said = await answer.text();
  if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${said.slice(0, 500)}`);
  return said === '' ? null : JSON.parse(said);
}

async function upload(module: Module): Promise<string> {
  const name = `${mark}-${module}`;
  const zip = await packZip([{ path: 'main.tf', bytes: Buffer.from(modules[module]), isExecutable: false }], {
    compress: true,
  });
  const form = new FormData();
  form.append('name', name);
  form.append('file', new File([new Uint8Array(zip)], `${name}.zip`));
  await ask('POST', '/v1/stacks', form);
  return name;
}

let clusters = 0;

async function makeCluster(organization: string): Promise<string> {
  clusters += 1;
  // No module of these goes to a node.
  const nodes = [{ name: 'n-1', address: '192.0.2.1', hardware_profile: 'none' }];
  const body = { name: `${mark}-${clusters}`, organization_id: organization, nodes };
  return ((await ask('POST', '/v1/clusters', body)) as { id: string }).id;
}

const apply = async (stack: string, clusterId: string): Promise<Run> =>
  (await ask('POST', `/v1/stacks/${stack}/apply`, { cluster_id: clusterId })) as Run;

interface Followed {
  readonly firstMs: number;
  readonly endMs: number;
  readonly lines: number;
}

/** Milliseconds from `since`, as a reader of the log has them. @throws Error when it is not APPLIED */
async function follow({ id }: Run, since: number): Promise<Followed> {
  const headers = { authorization, accept: 'text/event-stream' };
  const answer = await fetch(new URL(`/v1/runs/${id}/logs`, base), { headers });
  let [firstMs, count, status] = [Number.NaN, 0, ''];
  let rest = '';
  for await (const part of answer.body?.pipeThrough(new TextDecoderStream()) ?? []) {
    const events = (rest + part).split('\n\n');
    rest = events.pop() ?? '';
    const found = events.filter((event) => /^id: /m.test(event)).length;
    if (count === 0 && found > 0) firstMs = performance.now() - since;
    count += found;
    const last = events.find((event) => event.startsWith('event: status')) ?? '';
    status = /"status":"(\w+)"/.exec(last)?.[1] ?? status;
  }
  const endMs = performance.now() - since;
  if (status === 'APPLIED') return { firstMs, endMs, lines: count };
  const ended = (await ask('GET', `/v1/runs/${id}`)) as Run;
  throw new Error(`the run is ${status}: ${ended.failure_message ?? ''}`);
}

/** The commands of a run, one after the other, with nothing around them. */
async function alone(module: Module): Promise<number> {
  const folder = mkdtempSync(join(tmpdir(), 'hg-bench-'));
  try {
    writeFileSync(join(folder, 'main.tf'), modules[module]);
    const env = { PATH: process.env['PATH'], HOME: folder, CHECKPOINT_DISABLE: '1', TF_CLI_CONFIG_FILE: '/dev/null' };
    const since = performance.now();
    for (const command of [
      ['init', '-input=false', '-no-color', '-json'],
      ['plan', '-input=false', '-json', '-out=plan'],
      ['apply', '-input=false', '-json', 'plan'],
      ['output', '-json'],
    ]) {
      await run(terraform, [`-chdir=${folder}`, ...command], { env, maxBuffer: 1024 ** 3 });
    }
    return performance.now() - since;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

const row = (name: string, times: readonly number[], to: number): void => {
  const figures = [Math.min(...times), median(times), Math.max(...times)].map((ms) => ms.toFixed(0).padStart(8));
  console.log(`${figures.join('')} ms ${(median(times) / to).toFixed(2).padStart(7)}  ${name}`);
};

async function measureSmallest(stack: string, organization: string): Promise<void> {
  const found: Followed[] = [];
  const accepted: number[] = [];
  const bare: number[] = [];
  for (let i = 0; i <= tries; i += 1) {
    const cluster = await makeCluster(organization);
    const aloneMs = await alone('small');
    const since = performance.now();
    const started = await apply(stack, cluster);
    const acceptedMs = performance.now() - since;
    const followed = await follow(started, since);
    // The first one warms caches of files.
    if (i === 0) continue;
    found.push(followed);
    accepted.push(acceptedMs);
    bare.push(aloneMs);
  }
  const to = median(bare);
  console.log('     min  median     max        ratio');
  row('init, plan, apply and output of the smallest stack, without a gateway', bare, to);
  row('request to the answer 202', accepted, to);
  const [firsts, ends] = [found.map(({ firstMs }) => firstMs), found.map(({ endMs }) => endMs)];
  row('request to the first line of the log', firsts, to);
  row('request to APPLIED, as the log says it', ends, to);
}

async function measureLines(stack: string, organization: string): Promise<void> {
  const aloneMs = await alone('lines');
  const since = performance.now();
  const { endMs, firstMs, lines: count } = await follow(await apply(stack, await makeCluster(organization)), since);
  const perSecond = Math.round((count / (endMs - firstMs)) * 1000);
  console.log(
    `${count} lines, ${perSecond} lines a second at a reader from the first to the end; ` +
      `${(endMs / aloneMs).toFixed(2)} times as long as without a gateway (${Math.round((lines / aloneMs) * 1000)} a second)`,
  );
}

async function measureAtOnce(stack: string, organization: string): Promise<void> {
  const ids = await Promise.all(Array.from({ length: atOnce }, () => makeCluster(organization)));
  const since = performance.now();
  const started = await Promise.all(ids.map((id) => apply(stack, id)));
  const state = { isOver: false, most: 0 };
  const watch = async (): Promise<void> => {
    while (!state.isOver) {
      const runs = await Promise.all(started.map(async ({ id }) => (await ask('GET', `/v1/runs/${id}`)) as Run));
      const active = runs.filter(({ status, ended_at: ended }) => status !== 'PENDING' && ended === null);
      state.most = Math.max(state.most, active.length);
    }
  };
  const watched = watch();
  const ended = await Promise.all(started.map((one) => follow(one, since)));
  state.isOver = true;
  await watched;
  const wallMs = Math.max(...ended.map(({ endMs }) => endMs));
  const perMinute = ((atOnce / wallMs) * 60_000).toFixed(1);
  console.log(
    `${atOnce} runs asked for together: ${wallMs.toFixed(0)} ms, ${perMinute} a minute, ${state.most} at once`,
  );
}

const { id: organization } = (await ask('POST', '/v1/organizations', { name: mark })) as { id: string };
const stacks: string[] = [];
try {
  const [small, printing] = [await upload('small'), await upload('lines')];
  stacks.push(small, printing);
  await measureSmallest(small, organization);
  await measureLines(printing, organization);
  await measureAtOnce(small, organization);
} finally {
  const query = `org=${organization}&limit=100`;
  for (;;) {
    const { data } = (await ask('GET', `/v1/clusters?${query}`)) as { data: { id: string }[] };
    if (data.length === 0) break;
    for (const { id } of data) await ask('DELETE', `/v1/clusters/${id}`);
  }
  for (const name of stacks) await ask('DELETE', `/v1/stacks/${name}`);
}
