import { describe, expect, it } from 'vitest';
import { figure, lostOf, until } from '#test/docker/checked-client.ts';
import { createFloor, dockerFile } from '#test/docker/docker-gateways.ts';

const floor = createFloor();
const steady = { stream: true, standin: { output_tokens: 10, tpot_ms: 10, finish: 'stop' } };
const isStart = ({ action }: { readonly action: string }): boolean => action === 'start';
const canary = { route: 'chat/completions', body: { messages: [{ role: 'user', content: 'Paris?' }], max_tokens: 4 } };

describe('a changed engine file under load', () => {
  it.each([
    [
      'an argument that vLLM does not know',
      'bad-argument',
      { flags: ['--no-such-flag'] },
      /settings.*unrecognized arguments: --no-such-flag/i,
    ],
    ['an image that is nowhere', 'bad-image', { fields: { image: 'headgate-test/absent:v2' } }, /image/i],
    [
      'a canary that comes to nothing',
      'bad-canary',
      { fields: { canaries: [{ ...canary, contains: 'Xyzzy' }], env: { A: '1' } } },
      /canary/i,
    ],
    ['an engine that answers nonsense', 'bad-answers', { flags: ['--status', '500'] }, /probe|status 500/i],
  ])('gets no request with %s: the old replica serves on, and the rollout has the reason', async (_, id, file, why) => {
    const { load, change, engine } = await floor.open({ engines: { [id]: dockerFile(id) } });
    const running = load(id, 4, steady);
    await running.more(4);
    const [before] = await floor.containers(id);
    await change(id, dockerFile(id, file));
    const refused = await until('it is refused', async () => {
      const { rollout } = await engine(id);
      return rollout?.state === 'refused' && rollout;
    });
    expect(refused.message).toMatch(why);
    await running.more(8);
    expect(lostOf(await running.stop())).toEqual([]);
    await until('the new one is gone', async () => (await floor.containers(id)).length === 1);
    expect(await floor.containers(id)).toMatchObject([{ Id: before?.Id, State: 'running' }]);
    expect(await engine(id)).toMatchObject({ state: 'ready', last_failure: null, replicas: [{ state: 'ready' }] });
  });

  it('takes over without a lost request, and the old replica ends', async (test) => {
    const { load, change, engine } = await floor.open({ engines: { good: dockerFile('good') } });
    const running = load('good', 8, steady);
    await running.more(8);
    const [before] = await floor.containers('good');
    const beganMs = performance.now();
    await change('good', dockerFile('good', { flags: ['--name', 'second'], fields: { canaries: [canary] } }));
    const after = await until('the new one alone', async () => {
      const [one, ...others] = await floor.containers('good');
      return one?.Id !== before?.Id && others.length === 0 && one;
    });
    const tookMs = performance.now() - beganMs;
    await running.more(16);
    const answers = await running.stop();
    expect(lostOf(answers)).toEqual([]);
    expect(await engine('good')).toMatchObject({ state: 'ready', rollout: null, last_failure: null });
    expect((await floor.inspect(after?.Id ?? '')).Config.Cmd).toContain('second');
    const serves = floor.events('good').filter(({ action }) => action === 'start');
    const ended = floor.events('good').find(({ action, id }) => action === 'die' && id === before?.Id);
    expect(ended?.atMs).toBeGreaterThan(serves[1]?.atMs ?? Infinity);
    await figure(
      test,
      'good rollout, 8 workers',
      `0 of ${answers.length} requests lost, done after ${Math.round(tookMs)} ms`,
    );
  });

  it('queues requests when both do not fit, and a failed version is replaced by the old one', async (test) => {
    const fields = { gpus: { count: 1 } };
    const { load, change, engine } = await floor.open({
      engines: { tight: dockerFile('tight', { fields }) },
      gpuIds: ['GPU-tight'],
    });
    const running = load('tight', 4, steady);
    await running.more(4);
    await change('tight', dockerFile('tight', { fields, flags: ['--no-such-flag'] }));
    await until('it is refused', async () => (await engine('tight')).rollout?.state === 'refused');
    await running.more(8);
    const [restored] = await floor.containers('tight');
    expect((await floor.inspect(restored?.Id ?? '')).Config.Cmd).not.toContain('--no-such-flag');
    await change('tight', dockerFile('tight', { fields, flags: ['--name', 'second'] }));
    await until('the new one serves', async () => {
      const { state, rollout } = await engine('tight');
      return state === 'ready' && rollout === null && floor.events('tight').filter(isStart).length === 4;
    });
    await running.more(8);
    const answers = await running.stop();
    expect(lostOf(answers)).toEqual([]);
    expect(floor.sharedDevices()).toEqual([]);
    const [after] = await floor.containers('tight');
    expect((await floor.inspect(after?.Id ?? '')).Config.Cmd).toContain('second');
    await figure(
      test,
      'rollouts without room, a bad and a good one, 4 workers',
      `0 of ${answers.length} requests lost`,
    );
  });
});
