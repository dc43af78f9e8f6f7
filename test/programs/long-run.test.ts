import { readdirSync, readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { type Body, errorOf, eventually } from '#test/inference/inference-gateway.ts';
import { liftLimits } from '#test/gateway.ts';
import { type Client, clientOf, givenKey, readFrames, useProcesses } from '#test/programs/gateway-process.ts';

const processes = useProcesses();
const env = { HEADGATE_BOOTSTRAP_KEY: givenKey };

describe('the log at level trace', () => {
  it('contains no secret, prompt or answer, also after errors', async () => {
    const databaseUrl = await processes.database();
    const home = processes.home();
    const settings = {
      ...env,
      LOG_LEVEL: 'trace',
      HEADGATE_UPSTREAM_IDLE_SECONDS: '1',
      HEADGATE_UPSTREAM_FIRST_BYTE_SECONDS: '1',
    };
    const gateway = processes.run({ home, databaseUrl, env: settings });
    const url = await gateway.url();
    const client = clientOf(url);
    const messages = [{ role: 'user', content: 'the-prompt-marker' }];
    const text = 'the-answer-marker and some more';

    expect(await (await client.chat({ messages, standin: { text } })).text()).toContain('the-answer-marker');
    const streamed = await client.chat({ messages, stream: true, standin: { text } });
    expect(await streamed.text()).toContain('[DONE]');
    for (const standin of [
      { status: 500, status_message: 'the-answer-marker' },
      { status: 400, status_message: 'the-answer-marker' },
      { garbage_http: true },
      { error_after: 2, text },
      { garbage_after: 2, text },
      { cut_after: 2, cut_mid_frame: true, text },
      { hang: 'after_tokens', hang_after: 2, text },
    ]) {
      for (const stream of [true, false]) await (await client.chat({ messages, stream, standin })).text();
    }
    expect(await errorOf(await client.chat({ messages, max_tokens: 'the-prompt-marker' }))).toMatchObject({
      status: 400,
    });
    const headers = { authorization: `Bearer ${givenKey}`, 'content-type': 'application/json' };
    const post = (path: string, body: string): Promise<Response> =>
      fetch(new URL(path, url), { method: 'POST', headers, body });
    await post('/v1/chat/completions', '{"model": the-prompt-marker');
    const made: Body = await (await post('/v1/keys', JSON.stringify({ name: 'one' }))).json();
    expect(made.secret).toMatch(/^sk-hg-/);
    await clientOf(url, made.secret).chat({ messages });
    await clientOf(url, 'sk-hg-the-wrong-key-marker').chat({ messages });
    await post('/v1/keys/report', JSON.stringify({ secret: made.secret }));
    gateway.signal('SIGTERM');
    await gateway.exited;

    const said = `${gateway.output.stdout}${gateway.output.stderr}`;
    expect(said.split('"msg":"request').length).toBeGreaterThan(15);
    for (const hidden of ['-marker', givenKey, made.secret, new URL(databaseUrl).password, 'Bearer'])
      expect(said).not.toContain(hidden);
  });
});

/** Runs a task so many times, ten at once. */
async function repeat(times: number, task: () => Promise<void>): Promise<void> {
  let left = times;
  const worker = async (): Promise<void> => {
    while (left > 0) {
      left -= 1;
      await task();
    }
  };
  await Promise.all(Array.from({ length: 10 }, worker));
}

async function answered(client: Client): Promise<void> {
  const answer = await client.chat({ max_tokens: 2 });
  await answer.arrayBuffer();
  if (answer.status !== 200) throw new Error(`status ${answer.status}`);
}

async function left(client: Client): Promise<void> {
  const leaving = new AbortController();
  const standin = { tpot_ms: 5, output_tokens: 1000, finish: 'length' };
  const answer = await client.chat({ stream: true, max_tokens: 1000, standin }, leaving.signal);
  await readFrames(answer, 2);
  leaving.abort();
}

describe('a gateway after thousands of requests', () => {
  it('holds no more open files, and at most 100 MB more memory, than after a few hundred', async () => {
    const home = processes.home();
    const gateway = processes.run({ home, databaseUrl: await processes.database(), env });
    const url = await gateway.url();
    await liftLimits(url, givenKey);
    const client = clientOf(url);
    const openFiles = (): number => readdirSync(`/proc/${gateway.pid}/fd`).length;
    const residentMb = (): number =>
      Number(/^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${gateway.pid}/status`, 'utf8'))?.[1]) / 1024;

    await repeat(300, () => answered(client));
    await repeat(20, () => left(client));
    const filesBefore = openFiles();
    const memoryBeforeMb = residentMb();
    await repeat(2000, () => answered(client));
    await repeat(200, () => left(client));
    await eventually(async () => openFiles() <= filesBefore + 5);
    expect(residentMb() - memoryBeforeMb).toBeLessThan(100);

    const summary = await eventually(async () => {
      const read = await client.get('/v1/usage/summary?from=2026-01-01');
      return read.totals?.num_model_requests < 2520 ? null : read;
    });
    expect(summary).toMatchObject({
      totals: { num_model_requests: 2520, outcomes: { completed: 2300, aborted: 220 } },
    });
    expect(await client.get('/v1/wallet')).toMatchObject({ held: '0' });
  });
});
