import type { Socket } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import type { Body } from '#test/inference/inference-gateway.ts';
import {
  head,
  hear,
  post,
  refusalOf,
  serveCustomer,
  stubborn,
  tell,
  until,
  useVictim,
  type Heard,
} from './attacked-gateway.ts';

const bodyBytesMax = 33_554_432;
const victim = useVictim({ env: { HEADGATE_BODY_STALL_SECONDS: '2', HEADGATE_MAX_IN_FLIGHT: '300' } });
const path = '/v1/chat/completions';
const open: Socket[] = [];

afterEach(() => {
  for (const socket of open.splice(0)) socket.destroy();
});

interface Upload {
  readonly socket: Socket;
  readonly heard: Heard;
}

/** The beginning of a request of the attacker's whose body does not come. */
function begin(length: number, to = path, key = victim().attacker.key): Upload {
  const socket = stubborn(victim().url);
  open.push(socket);
  const heard = hear(socket);
  const type = { authorization: `Bearer ${key}`, 'content-type': 'application/json' };
  socket.write(`${head('POST', to, { ...type, 'content-length': length })}{`);
  return { socket, heard };
}

/** A byte now and then, for as long as the connection lives. */
function drip({ socket }: Upload): void {
  const drop = setInterval(() => socket.write(' '), 200);
  socket.on('close', () => clearInterval(drop));
}

const statusOf = ({ text }: Heard): number => Number(/^HTTP\/1\.1 (\d+)/.exec(text)?.[1] ?? 0);
const codeOf = ({ text }: Heard): string => /"code":"(\w+)"/.exec(text)?.[1] ?? '';
const countOf = (uploads: readonly Upload[], status: number): number =>
  uploads.filter(({ heard }) => statusOf(heard) === status).length;

function chatBody(bytes: number, unit = 'x'): string {
  const before = '{"model":"chat","max_tokens":1,"messages":[{"role":"user","content":"';
  return `${before}${unit.repeat(Math.floor((bytes - before.length - 4) / unit.length))}"}]}`;
}

describe('bodies that arrive slowly', () => {
  it("are limited to the key's concurrency, and the others get 429", async () => {
    const uploads = Array.from({ length: 60 }, () => begin(bodyBytesMax));
    await until(
      () => uploads.every(({ heard }, index) => index < 10 || statusOf(heard) !== 0) || countOf(uploads, 429) === 50,
    );
    expect(countOf(uploads, 429)).toBe(50);
    const refused = uploads.find(({ heard }) => statusOf(heard) === 429);
    expect(codeOf(refused?.heard ?? { text: '', closed: false })).toBe('concurrency_limit_exceeded');
    expect(refused?.heard.text).toMatch(/\r\nretry-after: 1\r\n/i);
  });

  it('leave a customer every answer, with 400 such connections', async () => {
    const attack = setInterval(() => {
      if (open.length < 400) drip(begin(bodyBytesMax));
    }, 5);
    try {
      await until(() => open.length > 100);
      const { answers } = await serveCustomer(victim(), 'while 400 connections drip bodies', 100);
      expect(answers).toBe(100);
    } finally {
      clearInterval(attack);
    }
  });

  it('get 408 below the minimum rate', async () => {
    const upload = begin(bodyBytesMax);
    drip(upload);
    await until(() => statusOf(upload.heard) !== 0);
    expect([statusOf(upload.heard), codeOf(upload.heard)]).toEqual([408, 'request_timeout']);
    expect(upload.heard.text).toContain('bytes per second');
  });

  it('count against no limit once they are closed: the key is served', async () => {
    const uploads = Array.from({ length: 10 }, () => begin(bodyBytesMax));
    const beyond = begin(bodyBytesMax);
    await until(() => statusOf(beyond.heard) === 429);
    for (const { socket } of uploads) socket.destroy();
    await until(() => true);
    const answer = await postUntil(200);
    expect(answer.status).toBe(200);
  });
});

async function postUntil(status: number): Promise<{ status: number; text: string }> {
  for (;;) {
    const answer = await post(victim().url, path, victim().attacker.key, chatBody(100_000));
    if (answer.status === status || answer.status !== 429) return answer;
  }
}

describe('large bodies', () => {
  it('of one key use its share of the memory and no more', async () => {
    victim().peakMiB();
    const before = victim().memoryMiB();
    const body = Buffer.from(chatBody(31 * 1_048_576));
    const { key } = victim().attacker;
    // No limit of requests at once: the share of the memory is what is left.
    await victim().api(`/v1/keys/${victim().attacker.keyId}`, {
      key: victim().attacker.managementKey,
      method: 'PATCH',
      body: { max_concurrency: null },
    });
    const attack = (async () => {
      const codes: (string | number)[] = [];
      for (let round = 0; round < 3; round += 1) {
        const answers = await Promise.all(Array.from({ length: 12 }, () => post(victim().url, path, key, body)));
        codes.push(...answers.map((answer) => (answer.status === 200 ? 200 : refusalOf(answer).code)));
      }
      return codes;
    })();
    const served = await serveCustomer(victim(), 'while bodies of 31 MiB come, twelve at once', 100);
    const codes = await attack;
    const peak = victim().peakMiB();
    tell(
      `memory: ${before} MiB before, at most ${peak} MiB; ${JSON.stringify(Object.entries(Object.groupBy(codes, String)).map(([code, all]) => [code, all?.length]))}`,
    );
    expect(served.answers).toBe(100);
    expect(codes).toContain('concurrency_limit_exceeded');
    expect(codes).not.toContain('overloaded');
    expect(peak - before).toBeLessThan(700);
  });

  it.each([
    [
      'millions of fields',
      `{${Array.from({ length: 600_000 }, (_, index) => `"k${index}":1`).join(',')}}`,
      '512 fields',
    ],
    [
      'millions of fields within',
      `{"model":"chat","messages":[${'{"role":"user"},'.repeat(400_000)}{}]}`,
      '100000 fields',
    ],
    [
      'a thousand levels',
      `{"model":"chat","messages":${'['.repeat(900)}${']'.repeat(900)}}`,
      '128 levels of nested objects',
    ],
    ['millions of texts without meaning', `{"model":"chat","n":0,"stop":[${'"\\"",'.repeat(3_000_000)}""]}`, '"n"'],
  ])('return 400 for %s, and delay no other request', async (name, made, text) => {
    const body = Buffer.from(made);
    const { key } = victim().attacker;
    const said = new Set<string>();
    let attacked = 0;
    let going = true;
    const attack = Promise.all(
      Array.from({ length: 4 }, async () => {
        while (going) {
          const answer = await post(victim().url, path, key, body);
          const { error }: Body = JSON.parse(answer.text);
          said.add(answer.status === 400 ? error.message : error.code);
          attacked += 1;
        }
      }),
    );
    const served = await serveCustomer(victim(), `while bodies of ${name} come`, 100);
    going = false;
    await attack;
    tell(`${attacked} of them meanwhile`);
    expect(served.answers).toBe(100);
    said.delete('concurrency_limit_exceeded');
    expect([...said]).toEqual([expect.stringContaining(text)]);
  });

  it('are served like small ones when they are well formed', async () => {
    for (const bytes of [5000, 200_000, 300_000, 2_000_000]) {
      const answer = await post(victim().url, path, victim().customer.key, chatBody(bytes, 'hello wörld '));
      // A stand-in has a context of 8192 tokens: longer ones are its to refuse.
      const code = answer.status === 200 ? null : refusalOf(answer).code;
      expect([bytes, code]).toEqual([bytes, bytes < 20_000 ? null : 'context_length_exceeded']);
    }
  });
});

describe('bodies of the JSON API', () => {
  it('leave places and memory to others when they arrive slowly', async () => {
    const { managementKey } = victim().attacker;
    const uploads = Array.from({ length: 150 }, () => begin(1_000_000, '/v1/keys', managementKey));
    await until(() => countOf(uploads, 429) === 150 - 104);
    const customer = await victim().api('/v1/keys', { key: victim().customer.managementKey });
    expect(customer.data.length).toBeGreaterThan(0);
  });

  it('return 400 at once for tens of thousands of unknown fields', async () => {
    const fields = Array.from({ length: 60_000 }, (_, index) => `"k${index}":1`).join(',');
    const attack = post(victim().url, '/v1/keys', victim().attacker.managementKey, `{${fields}}`);
    await serveCustomer(victim(), 'while a body of unknown fields is refused', 20);
    const answer = await attack;
    expect([answer.status, answer.text.length < 1000]).toEqual([400, true]);
  });
});
