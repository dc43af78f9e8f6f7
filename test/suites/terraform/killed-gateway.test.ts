import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { Body } from '#test/inference/inference-gateway.ts';
import { rowsOf } from '#test/terraform/printed.ts';
import { usePlace } from '#test/terraform/run-gateway.ts';
import { waitingStack } from '#test/terraform/waiting-stacks.ts';

const newPlace = usePlace();
const rows = Array.from({ length: 400 }, (_, index) => index + 1);

/** A stack whose parts leave their node once the file `gone` is there. */
const slowlyGoing = waitingStack().replace(
  'inline = ["rm -f',
  `inline = ["echo it is taken away.", "until [ -e '\${self.input.folder}/gone' ]; do sleep 0.1; done", "rm -f`,
);

const touch = (folder: string, name: string): void => {
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, name), '');
};

/** The other states, in which a program of the run goes on, stand in runs.test.ts. */
describe('kill -9 of the gateway', () => {
  it('leaves a pending, a canceling and a destroying run, which all end as requested', async () => {
    const place = await newPlace();
    const env = { HEADGATE_RUNS_AT_ONCE: '3' };
    const first = await place.start({ env });
    const { id } = await first.made('/v1/organizations', { name: 'Organization' });
    await first.upload('waiting', waitingStack());
    await first.upload('going', slowlyGoing);
    const begin = async (stack: string): Promise<{ run: Body; folder: string; cluster: Body }> => {
      const cluster = await first.cluster(place.server, id);
      const folder = place.folder();
      return { run: await first.apply(stack, cluster.id, { folder }), folder, cluster };
    };

    const destroyed = await begin('going');
    touch(destroyed.folder, 'go');
    await first.becomes(destroyed.run.id, 'APPLIED');
    const destroying = await first.made(`/v1/runs/${destroyed.run.id}/destroy`);
    const before = await begin('waiting');
    const waiting = await first.apply('waiting', before.cluster.id, { folder: before.folder });
    const canceled = await begin('waiting');
    await first.prints(before.run.id, 'row 200.');
    await first.prints(canceled.run.id, 'row 200.');
    await first.prints(destroying.id, 'it is taken away.');
    // Asked to end, it does not get to it.
    first.signalIn(canceled.run.id, 'apply', 'terraform', 'SIGSTOP');
    await first.made(`/v1/runs/${canceled.run.id}/cancel`);
    const states = await Promise.all([waiting, canceled.run, destroying].map(({ id: runId }) => first.run(runId)));
    expect(states.map(({ status }) => status)).toEqual(['PENDING', 'CANCELING', 'DESTROYING']);
    await first.kill();

    first.signalIn(canceled.run.id, 'apply', 'terraform', 'SIGCONT');
    touch(destroyed.folder, 'gone');
    touch(before.folder, 'go');
    // It does not wait for the leases of the one before it.
    await place.lapse(-60);
    const second = await place.startHere({ home: first.home, env });
    await second.becomes(destroying.id, 'DESTROYED');
    expect(existsSync(join(destroyed.folder, 'software'))).toBe(false);
    await second.becomes(canceled.run.id, 'CANCELED');
    // The waiting run finds everything in its planned state, and changes nothing.
    expect(await second.becomes(waiting.id, 'APPLIED')).toMatchObject({ changes: { add: 0, change: 0, remove: 0 } });
    expect(await second.run(before.run.id)).toMatchObject({ status: 'SUPERSEDED' });
    expect(rowsOf(await second.log(before.run.id))).toEqual(rows);
    expect(readFileSync(join(before.folder, 'times'), 'utf8')).toBe('once\n');
    // The parts of the canceled run are on record: they can be destroyed.
    const cleared = await second.made(`/v1/runs/${canceled.run.id}/destroy`);
    await second.becomes(cleared.id, 'DESTROYED');
    expect(existsSync(join(canceled.folder, 'software'))).toBe(false);
  });
});
