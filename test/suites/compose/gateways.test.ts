import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { chapterLines } from '#test/chapter-lines.ts';
import { composeCommand } from '#test/compose.ts';
import { freePort } from '#test/free-port.ts';
import { liftLimits } from '#test/gateway.ts';
import { containerEngine } from './container-engine.ts';
import { addTls, newCertificate, shownSerial } from './proxy-tls.ts';
import { readmeBlocks, startStack, type Stack } from './stack.ts';

/** Several gateways of one service, behind the proxy of compose.gateways.yaml. Their secrets change meanwhile. */

/** Renewals of all gateways in a row, under load. */
const renewals = Number(process.env['RENEWALS'] ?? 1);

/** Secrets that compose.yaml does not mount, one of them in place of a setting of its own. */
const ownFile = `
services:
  gateway:
    environment: {HF_TOKEN_FILE: /run/secrets/hf_token, REDIS_URL: "", REDIS_URL_FILE: /run/secrets/redis_url}
    secrets: [hf_token, redis_url]
secrets:
  hf_token: {file: ./secrets/hf_token}
  redis_url: {file: ./secrets/redis_url}
`;

let stack: Stack;
let renew = '';
let tlsPort = 0;
let withTls = (lines: string): string => lines;
beforeAll(async () => {
  const engine = containerEngine(['env: { HF_TOKEN: "${HF_TOKEN}" }']);
  stack = await startStack({ 'container-chat.yaml': engine }, ownFile);
  writeFileSync(join(stack.folder, 'compose/secrets/redis_url'), 'redis://redis:6379\n');
  writeFileSync(join(stack.folder, 'compose/secrets/hf_token'), 'hf_old\n');
  await stack.shell(stack.quickStart);
  await liftLimits(stack.url, stack.key);
  tlsPort = await freePort();
  withTls = addTls(stack.folder, tlsPort);
  const [start = '', renewing = ''] = chapterLines(join(stack.folder, 'compose/gateways.md'), 'Several gateways').map(
    withTls,
  );
  renew = renewing;
  await stack.shell(start);
}, 900_000);
afterAll(() => stack?.stop());

interface Container {
  readonly Id: string;
}

async function containerIds(label: string): Promise<string[]> {
  const filters = encodeURIComponent(JSON.stringify({ label: [label] }));
  const found = (await stack.docker.call('GET', `/containers/json?filters=${filters}`)) as Container[];
  return found.map(({ Id: id }) => id);
}

const gatewayIds = (): Promise<string[]> => containerIds('com.docker.compose.service=gateway');

const rotation = (heading: string): string[] => chapterLines(join(stack.folder, 'compose/rotate.md'), heading);

/** Calls the API, and must succeed. */
async function read(path: string, body?: object): Promise<Json> {
  const answer = await stack.ask(path, body);
  if (!answer.ok) throw new Error(`${path}: ${answer.status} ${await answer.text()}`);
  return answer.json();
}

type Json = ReturnType<JSON['parse']>;

const docker = (line: string): Promise<string> => stack.shell(`docker ${line}`);

/** A chat with as many tokens, each of which takes 20 ms. It is asked again where a gateway says so, as SDKs do. */
async function chat(stream: boolean, tokens: number, model = 'standin-chat'): Promise<string> {
  const body = {
    model,
    messages: [{ role: 'user', content: 'Hello' }],
    stream,
    max_tokens: tokens,
    standin: { tpot_ms: 20, output_tokens: tokens, finish: 'length' },
  };
  let answer = await stack.ask('/v1/chat/completions', body);
  for (let again = 0; again < 2 && answer.status === 503 && answer.headers.has('retry-after'); again += 1) {
    await new Promise((resolve) => setTimeout(resolve, 1000));
    answer = await stack.ask('/v1/chat/completions', body);
  }
  const text = await answer.text();
  if (answer.status !== 200) return `${answer.status} ${text.slice(0, 200)}`;
  return text.includes(stream ? 'data: [DONE]' : '"usage"') ? 'whole' : `cut: ${text.slice(-100)}`;
}

const lossOf = (asked: Promise<string>): Promise<string> => asked.catch((error: unknown) => `lost: ${String(error)}`);

/** A figure of one gateway's metrics. */
async function figureOf(id: string, name: string): Promise<number> {
  const script = `fetch('http://127.0.0.1:9464/metrics').then((answer) => answer.text()).then(console.log)`;
  const text = await docker(`exec ${id} node -e "${script}"`);
  return Number(new RegExp(`^${name} (\\d+)`, 'm').exec(text)?.[1] ?? 0);
}

/** The line that renews all gateways, with the tool and the further files of here. */
function renewLines(): string {
  const [program = '', ...words] = composeCommand(process.env) ?? [];
  const files = '--env-file compose/.env -f compose/compose.yaml -f compose/overlay.yaml -f compose/own.yaml';
  return `export COMPOSE='${[program, ...words].join(' ')}'\n${renew.replace('-f compose/compose.yaml', files)}`;
}

const runningOn = (id: string): Promise<number> => figureOf(id, 'headgate_requests_in_flight');

describe('three gateways on one volume', () => {
  it('run side by side, each in its own folder', async () => {
    const ids = await gatewayIds();
    expect(ids).toHaveLength(3);
    await expect.poll(() => docker(`exec ${ids[0]} ls /var/lib/headgate/gateways`)).toBe('1\n2\n');
    for (const id of ids) {
      const ready = `fetch('http://localhost:8080/readyz').then(({ status }) => console.log(status), String)`;
      await expect.poll(() => docker(`exec ${id} node -e "${ready}"`)).toBe('200\n');
    }
  });

  it('switch to a new PostgreSQL password and back without a restart', async () => {
    const [change = '', check = '', goBack = ''] = rotation('PostgreSQL password');
    const endConnections = `select pg_terminate_backend(pid) from pg_stat_activity where usename = 'headgate' and pid <> pg_backend_pid()`;
    const spent = async (): Promise<string> => (await read('/v1/wallet')).balance;
    const books = async (lines: string): Promise<void> => {
      await stack.shell(lines);
      await stack.compose('exec', '-T', 'postgres', 'psql', '-qU', 'headgate', '-c', endConnections);
      const before = await eventualBalance();
      expect(await lossOf(chat(false, 5))).toBe('whole');
      await expect.poll(spent).not.toBe(before);
    };
    const eventualBalance = async (): Promise<string> => {
      await expect.poll(async () => (await stack.ask('/v1/wallet')).status).toBe(200);
      return spent();
    };
    await books(change);
    const checked = await stack.shell(check);
    expect(checked).toMatch(/ backup headgate-\S+\.dump, \d+ bytes/);
    expect(checked).toMatch(/^✓ postgresql/m);
    await books(goBack);
  });

  it('get a new certificate of their proxy without a restart', async () => {
    const [before, proxy] = [await shownSerial(tlsPort), await containerIds('com.docker.compose.service=proxy')];
    writeFileSync(join(stack.folder, 'compose/secrets/proxy.pem'), newCertificate());
    const [reload = ''] = rotation('TLS certificates');
    await stack.shell(withTls(reload));
    await expect.poll(() => shownSerial(tlsPort)).not.toBe(before);
    expect(await containerIds('com.docker.compose.service=proxy')).toEqual(proxy);
    expect(await chat(false, 5)).toBe('whole');
  });

  it('are not updated with fewer compose files than they were started with', async () => {
    const before = await gatewayIds();
    const printed = await stack.type(renewLines().replace(' -f compose/own.yaml', ''));
    expect(printed).toMatch(/A file is missing or not in its place: (?:\S+\/)?compose\/own\.yaml\./);
    expect(await gatewayIds()).toEqual(before);
  });

  it('lose none of more than 500 requests during a rolling update with new secrets', async () => {
    // Something that the platform key encrypts, and an engine that has the token.
    const organization = (await read('/v1/organizations')).data[0].id;
    await read('/v1/clusters', { name: 'one', organization_id: organization });
    expect(await chat(false, 5, 'container-chat')).toBe('whole');
    const [engine] = await containerIds('headgate.engine=container-chat');
    await stack.shell(rotation('Passphrase of backups')[0] ?? '');
    await stack.shell(rotation('Hugging Face token')[0] ?? '', 'hf_new\n');
    const before = await gatewayIds();
    // As a renewal leaves it that failed before it made a new one.
    await docker(`stop ${before[0]}`);
    await docker(`rm ${before[0]}`);
    let isRenewed = false;
    const renewAll = async (): Promise<void> => {
      for (let done = 0; done < renewals; done += 1) await stack.shell(renewLines());
    };
    const renewing = renewAll().finally(() => {
      isRenewed = true;
    });
    const outcomes: string[] = [];
    const client = async (stream: boolean): Promise<void> => {
      while (!isRenewed || outcomes.length < 500) outcomes.push(await lossOf(chat(stream, stream ? 20 : 5)));
    };
    await Promise.all([client(true), client(true), client(false), client(false), client(false)]);
    await renewing;
    expect(outcomes.filter((outcome) => outcome !== 'whole')).toEqual([]);
    process.stdout.write(`${outcomes.length} requests in ${renewals} renewals of three gateways, none lost\n`);
    const after = await gatewayIds();
    expect(after).toHaveLength(3);
    expect(before.filter((id) => after.includes(id))).toEqual([]);
    await expect.poll(() => containerIds('headgate.engine=container-chat')).not.toContain(engine);
    const [renewed] = await containerIds('headgate.engine=container-chat');
    expect(JSON.stringify(await stack.docker.call('GET', `/containers/${renewed}/json`))).toContain('HF_TOKEN=hf_new');
    expect(await chat(false, 5, 'container-chat')).toBe('whole');
  });

  it('lose only the requests of a gateway that is killed', async () => {
    const [victim = ''] = await gatewayIds();
    const streams = Array.from({ length: 9 }, () => lossOf(chat(true, 1000)));
    await expect.poll(() => runningOn(victim)).toBeGreaterThan(0);
    const running = await Promise.all((await gatewayIds()).map(runningOn));
    await docker(`kill ${victim}`);
    const next = Array.from({ length: 100 }, (_, index) => lossOf(chat(index % 2 === 0, 5)));
    expect((await Promise.all(next)).filter((outcome) => outcome !== 'whole')).toEqual([]);
    const lost = (await Promise.all(streams)).filter((outcome) => outcome !== 'whole');
    expect(lost).toHaveLength(running[0] ?? 0);
  });
});

describe('an empty machine', () => {
  it('restores keys, balances and encrypted secrets by the commands of the chapter', async () => {
    const { secret } = await read('/v1/keys', { name: 'kept' });
    const [cluster] = (await read('/v1/clusters')).data;
    const balance = (): Promise<string> => read('/v1/wallet').then((wallet) => wallet.balance);
    for (const id of await gatewayIds()) {
      await expect.poll(() => figureOf(id, 'headgate_books_spooled_records')).toBe(0);
    }
    const before = await balance();
    const [backup = '', copy = ''] = readmeBlocks(stack.folder, 'Backups');
    await stack.shell(backup);
    await stack.shell(copy);
    await stack.compose('-f', 'compose/compose.gateways.yaml', 'down', '--volumes', '--timeout', '5');
    await docker('rm -f $(docker ps -aq -f label=headgate.managed)');
    expect(await docker('volume ls -q')).toBe('');

    stack.set({ LISTEN: new URL(stack.url).host });
    const [restore = '', compare = ''] = chapterLines(
      join(stack.folder, 'compose/restore.md'),
      'Restore on an empty machine',
    );
    await stack.shell(restore);
    // doctor ends with 1 where it has something to say.
    const printed = await stack.shell(`set +e\n${compare}`);
    expect(printed).toContain('all valid');
    expect(printed).toMatch(new RegExp(`^✓ platform key.*${cluster.access_identity.encrypted_with}`, 'm'));
    expect(await balance()).toBe(before);
    expect(await chat(false, 5)).toBe('whole');
    const models = await fetch(`${stack.url}/v1/models`, { headers: { authorization: `Bearer ${secret}` } });
    expect(models.status).toBe(200);

    // Only who can open what the old key encrypted can encrypt it with a new one.
    const identity = async (): Promise<Json> => (await read(`/v1/clusters/${cluster.id}`)).access_identity;
    expect(await identity()).toEqual(cluster.access_identity);
    const [change = '', check = '', remove = ''] = rotation('Platform key');
    await stack.shell(change);
    await expect.poll(async () => (await identity()).encrypted_with).not.toBe(cluster.access_identity.encrypted_with);
    const { encrypted_with: key } = await identity();
    expect(await stack.shell(check)).toMatch(new RegExp(`^✓ platform key.*${key}.*backups contain it`, 'm'));
    await stack.shell(remove);
    expect(await stack.shell(check)).toMatch(new RegExp(`^✓ platform key.*${key}`, 'm'));
  });
});
