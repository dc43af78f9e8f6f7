import { describe, expect, it } from 'vitest';
import { figure, lostOf, until } from '#test/docker/checked-client.ts';
import { createFloor, dockerFile } from '#test/docker/docker-gateways.ts';

const floor = createFloor();
const count = (id: string, action: string): number => floor.events(id).filter((one) => one.action === action).length;
/** A stream of some seconds. */
const long = { stream: true, standin: { output_tokens: 60, tpot_ms: 50, finish: 'stop' } };
const steady = { stream: true, standin: { output_tokens: 20, tpot_ms: 10, finish: 'stop' } };

describe('an engine under load', () => {
  it.for([
    { what: 'is killed with -9', id: 'killed', method: 'POST', path: '/kill?signal=KILL' },
    { what: 'is removed by hand', id: 'drifted', method: 'DELETE', path: '?force=1' },
  ])(
    'is replaced when its container $what, and only its own requests are lost',
    async ({ what, id, method, path }, test) => {
      const workers = 12;
      const { load, engine } = await floor.open({ engines: { [id]: dockerFile(id) } });
      const running = load(id, workers, steady);
      await running.more(workers);
      const [before] = await floor.containers(id);
      const faultMs = Date.now();
      await floor.docker().call(method, `/containers/${before?.Id}${path}`);
      await until('another container', () => count(id, 'start') >= 2);
      await running.more(2 * workers);
      const answers = await running.stop();
      const lost = answers.filter(({ ok }) => !ok);
      expect(lost.length, lostOf(answers).join('\n')).toBeLessThanOrEqual(workers);
      expect(count(id, 'start')).toBe(2);
      const [after] = await floor.containers(id);
      expect(after?.Id).not.toBe(before?.Id);
      expect(await engine(id)).toMatchObject({ state: 'ready', last_failure: null });
      const back = Math.min(
        ...answers
          .filter(({ ok, sentAtMs }) => ok && sentAtMs > faultMs)
          .map((one) => one.sentAtMs + (one.firstTokenMs ?? 0)),
      );
      await figure(
        test,
        `container that ${what}, ${workers} workers`,
        `${lost.length} requests lost, first token again after ${Math.round(back - faultMs)} ms`,
      );
    },
  );

  it("completes 20 streams to the last token before an operator's stop ends it", async () => {
    const { begin, chat, admin, engine } = await floor.open({ engines: { drained: dockerFile('drained') } });
    expect(lostOf([await chat('drained')])).toEqual([]);
    const streams = Array.from({ length: 20 }, () => begin('drained', long));
    await Promise.all(streams.map(({ begun }) => begun));
    await admin('POST', '/v1/admin/engines/drained/stop');
    await until('it drains', async () => ['draining', 'held'].includes((await engine('drained')).state));
    const late = await chat('drained');
    expect(late.status).toBe(503);
    expect(JSON.parse(late.text).error.message).toMatch(/operator|administrator|stopped/i);
    const answers = await Promise.all(streams.map(({ ended }) => ended));
    const endedMs = Date.now();
    expect(lostOf(answers)).toEqual([]);
    expect(answers.map(({ text }) => text.match(/"content":"[^"]/g)?.length)).toEqual(
      answers.map(() => expect.any(Number)),
    );
    await until('no container', async () => (await floor.containers('drained')).length === 0);
    const [died] = floor.events('drained').filter(({ action }) => action === 'die');
    expect(died?.exitCode).toBe('0');
    const lastMs = Math.max(...answers.map(({ sentAtMs }) => sentAtMs));
    expect(died?.atMs).toBeGreaterThan(lastMs);
    expect(endedMs).toBeGreaterThan(lastMs);
    expect(await engine('drained')).toMatchObject({ state: 'held', held: true, replicas: [] });
  });
});

describe.concurrent('a faulty engine', () => {
  it('reports why its start failed, to clients in plain words and to operators in detail', async () => {
    const { chat, engine } = await floor.open({
      engines: { failing: dockerFile('failing', { flags: ['--fail-start', 'oom'] }) },
    });
    const refused = await chat('failing');
    expect(refused.status).toBe(503);
    // Only an operator can fix it.
    expect(refused.retryAfter).toBeNull();
    expect(JSON.parse(refused.text).error.message).toMatch(/memory/i);
    expect(await engine('failing')).toMatchObject({
      state: 'retrying',
      last_failure: { message: JSON.parse(refused.text).error.message, retry_at: expect.any(Number), failures: 1 },
    });
  });

  it('reports a missing image', async () => {
    const fields = { image: 'headgate-test/absent:v1' };
    const { chat, engine } = await floor.open({ engines: { absent: dockerFile('absent', { fields }) } });
    const refused = await chat('absent');
    expect(refused.status).toBe(503);
    expect(JSON.parse(refused.text).error.message).toMatch(/image/i);
    expect(refused.text).not.toMatch(/headgate-test|docker/i);
    expect((await engine('absent')).last_failure.message).toMatch(/image/i);
    expect(floor.events('absent')).toEqual([]);
  });

  it('stays failed after repeated crashes until it is reset', async () => {
    const { chat, engine, admin } = await floor.open({ engines: { crashing: dockerFile('crashing') } });
    expect(lostOf([await chat('crashing')])).toEqual([]);
    for (let starts = 1; starts <= 5; starts += 1) {
      await until(`start ${starts} is ready`, async () => {
        return count('crashing', 'start') === starts && (await engine('crashing')).state === 'ready';
      });
      const [container] = await floor.containers('crashing');
      await floor.docker().call('POST', `/containers/${container?.Id}/kill?signal=KILL`);
      await until('it has ended', () => count('crashing', 'die') === starts);
    }
    await until('it is given up', async () => {
      const { state, last_failure: failure } = await engine('crashing');
      return state === 'failed' && failure.retry_at === null;
    });
    expect(count('crashing', 'start')).toBe(5);
    const refused = await chat('crashing');
    expect(refused.status).toBe(503);
    expect(JSON.parse(refused.text).error.message).toBe((await engine('crashing')).last_failure.message);
    expect(count('crashing', 'create')).toBe(5);
    await admin('POST', '/v1/admin/engines/crashing/reset');
    await until('it is forgotten', async () => (await engine('crashing')).last_failure === null);
    expect(lostOf([await chat('crashing')])).toEqual([]);
    expect(count('crashing', 'create')).toBe(6);
  });

  it('is restarted automatically after an exit with code 0, and its streams report the break', async () => {
    const flags = ['--exit-after-ms', '12000', '--exit-code', '0'];
    const { begin, engine } = await floor.open({ engines: { leaving: dockerFile('leaving', { flags }) } });
    const { begun, ended } = begin('leaving', { standin: { output_tokens: 400, tpot_ms: 50 } });
    await begun;
    const answer = await ended;
    expect(answer).toMatchObject({ status: 200, ok: false });
    expect(answer.text).toMatch(/data: \{"error":\{.*"code":"upstream_error".*\}\}\n\ndata: \[DONE\]\n\n$/);
    await until('another start', () => count('leaving', 'start') >= 2);
    expect(floor.events('leaving').find(({ action }) => action === 'die')?.exitCode).toBe('0');
    expect((await engine('leaving')).held).toBe(false);
  });

  it('is killed after its grace time when it hangs on SIGTERM, and restarted only then', async (test) => {
    const flags = ['--ignore-sigterm'];
    const { chat, admin } = await floor.open({ engines: { hanging: dockerFile('hanging', { flags }) } });
    expect(lostOf([await chat('hanging')])).toEqual([]);
    await admin('POST', '/v1/admin/engines/hanging/stop');
    await until('a first signal', () => count('hanging', 'kill') >= 1);
    await admin('POST', '/v1/admin/engines/hanging/start');
    await until('another start', () => count('hanging', 'start') >= 2);
    const seen = floor.events('hanging').filter(({ action }) => ['kill', 'die', 'start', 'create'].includes(action));
    expect(seen.map(({ action }) => action)).toEqual(['create', 'start', 'kill', 'kill', 'die', 'create', 'start']);
    expect(seen[4]?.exitCode).toBe('137');
    await figure(test, 'hang on SIGTERM: ms until it was killed', (seen[4]?.atMs ?? NaN) - (seen[2]?.atMs ?? NaN));
    expect(lostOf([await chat('hanging')])).toEqual([]);
  });
});
