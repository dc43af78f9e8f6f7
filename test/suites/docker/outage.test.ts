import { describe, expect, it } from 'vitest';
import { figure, lostOf, until } from '#test/docker/checked-client.ts';
import { createFloor, dockerFile } from '#test/docker/docker-gateways.ts';

const steady = { stream: true, standin: { output_tokens: 20, tpot_ms: 10, finish: 'stop' } };
const workers = 6;

describe('a Docker engine killed with -9 under load', () => {
  describe('with containers that survive', () => {
    const floor = createFloor(() => ['--live-restore']);

    it('interrupts no request: the same container answers before and after its return', async (test) => {
      const { load, chat, engine, admin } = await floor.open({
        engines: { lives: dockerFile('lives'), other: dockerFile('other') },
      });
      const running = load('lives', workers, steady);
      await running.more(workers);
      const [before] = await floor.containers('lives');
      await floor.docker().kill();
      await running.more(4 * workers);
      await until('it is known to be away', async () => {
        const { data } = await admin('GET', '/v1/admin/hosts');
        return data.some(({ reachable }: { reachable: boolean }) => !reachable);
      });
      const refused = await chat('other');
      expect(refused).toMatchObject({ ok: false, status: 503, retryAfter: expect.stringMatching(/^[1-9]\d*$/) });
      expect(JSON.parse(refused.text).error.message).toContain('is unreachable');
      await running.more(4 * workers);
      await floor.docker().start();
      await running.more(4 * workers);
      await until('it is known to run', async () => (await engine('lives')).state === 'ready');
      const answers = await running.stop();
      expect(lostOf(answers)).toEqual([]);
      expect(await floor.containers('lives')).toMatchObject([{ Id: before?.Id, State: 'running' }]);
      expect(floor.events('lives').filter(({ action }) => action === 'create')).toHaveLength(1);
      expect(
        lostOf([
          await until('the other', async () => {
            const one = await chat('other');
            return one.ok && one;
          }),
        ]),
      ).toEqual([]);
      await figure(
        test,
        `dockerd killed and back, live-restore, ${workers} workers`,
        `0 of ${answers.length} requests lost`,
      );
    });
  });

  describe('with containers that end when it returns', () => {
    const floor = createFloor(() => []);

    it('interrupts no request while it is down; its return ends them, and the engine restarts', async (test) => {
      const { load, engine } = await floor.open({ engines: { ends: dockerFile('ends') } });
      const running = load('ends', workers, steady);
      await running.more(workers);
      const [before] = await floor.containers('ends');
      await floor.docker().kill();
      await running.more(4 * workers);
      expect(lostOf(running.answers)).toEqual([]);
      await floor.docker().start();
      const after = await until('another container', async () => {
        const found = (await floor.containers('ends')).find(
          ({ Id: id, State: state }) => id !== before?.Id && state === 'running',
        );
        return found;
      });
      await running.more(2 * workers);
      const answers = await running.stop();
      // A worker's running request is lost, and one more where its next request still reached an engine about to end.
      expect(lostOf(answers).length, lostOf(answers).join('\n')).toBeLessThanOrEqual(2 * workers);
      await until('it alone', async () => (await floor.containers('ends')).length === 1);
      expect(await floor.containers('ends')).toMatchObject([{ Id: after.Id }]);
      expect(await engine('ends')).toMatchObject({ state: 'ready', last_failure: null });
      await figure(
        test,
        `dockerd killed and back, ${workers} workers`,
        `${lostOf(answers).length} of ${answers.length} requests lost`,
      );
    });
  });
});
