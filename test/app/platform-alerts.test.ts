import { describe, expect, it } from 'vitest';
import { type AgreementParts, createAgreementPart } from '#app/agreement.ts';
import { createUpkeep, type UpkeepParts } from '#app/upkeep.ts';
import { parseConfig } from '#base/config/read-config.ts';
import { formatId } from '#base/id.ts';
import { createLog } from '#base/log.ts';
import type { LiveGateway } from '#core/gateways/gateways.ts';
import { type Got, verified } from '#test/alerts/receiver.ts';
import { hourMs, useScene, type Webhook } from '#test/alerts/scene.ts';

/** Alerts that only the organization of the platform gets, from the job that finds the problem to a webhook. */

const scene = useScene();
const log = createLog('silent');

interface Job {
  readonly name: string;
  readonly run: () => Promise<void>;
}

interface Event {
  readonly data: Readonly<Record<string, unknown>>;
}

/** A clock that stands at the start of a day. */
function stopClock() {
  let nowMs = Date.UTC(2026, 10, 25);
  return { now: () => nowMs, monotonicMs: () => nowMs, turn: (ms: number) => void (nowMs += ms) };
}

async function runJob(jobs: readonly Job[] | undefined, name: string): Promise<void> {
  const job = jobs?.find((one) => one.name === name);
  if (job === undefined) throw new Error(`no job "${name}"`);
  await job.run();
  await scene.deliver();
}

/** Creates webhooks of the platform's organization and of another organization, and returns how to read the events. */
async function listen(type: string) {
  const asked = { url: 'https://slow.example/platform', events: [type] };
  const webhook: Webhook = (await scene.api.ask('/v1/webhooks', { body: asked })).body;
  await scene.make({ events: [type] });
  return (): { hosts: string[]; events: Event[] } => {
    const got: readonly Got[] = scene.receiver.got.filter(({ body }) => body.includes(`"${type}"`));
    return { hosts: got.map(({ host }) => host), events: got.map((one) => verified(webhook.secret, one) as Event) };
  };
}

async function platformId(): Promise<string> {
  const platform = await scene.api.accounts.readPlatformOrganization();
  return formatId('org', platform?.id ?? '');
}

describe('gateways.differ', () => {
  const rolloutMs = 600_000;
  const gateway = (letter: string, days: string): LiveGateway => ({
    id: `${letter.repeat(8)}-0000-4000-8000-000000000000`,
    host: `host-${letter}`,
    version: '1.0.0',
    published: { setting: { HEADGATE_STORE_DAYS: days } },
  });

  it('reaches a webhook of the platform once an hour, when gateways differ for longer than a rollout', async () => {
    const read = await listen('gateways.differ');
    const clock = stopClock();
    const live = [gateway('a', '7'), gateway('b', '8')];
    const gateways = { id: live[0]?.id, publishes: () => undefined, published: () => live[0]?.published };
    const { api } = scene;
    const parts: unknown = {
      config: parseConfig({ HEADGATE_ROLLOUT_SECONDS: String(rolloutMs / 1000) }),
      foundation: { ...api, coordination: { gateways: { ...gateways, readLive: () => Promise.resolve(live) } } },
      db: api.db,
      clock,
      log,
    };
    const { jobs } = createAgreementPart(parts as AgreementParts).part;
    const report = () => runJob(jobs, 'report gateways that differ');
    await runJob(jobs, 'compare gateways');
    clock.turn(rolloutMs - 1);
    await report();
    expect(read().events).toEqual([]);
    clock.turn(1);
    await report();
    await report();
    const event = {
      type: 'gateways.differ',
      timestamp: expect.any(String),
      organization_id: await platformId(),
      data: {
        count: 1,
        differences: ['setting HEADGATE_STORE_DAYS: 7 on host-a (aaaaaaaa); 8 on host-b (bbbbbbbb)'],
      },
    };
    expect(read()).toEqual({ hosts: ['slow.example'], events: [event] });
    clock.turn(hourMs);
    await report();
    expect(read().events).toEqual([event, event]);
    live.pop();
    await runJob(jobs, 'compare gateways');
    clock.turn(hourMs);
    await report();
    expect(read().events).toHaveLength(2);
  });
});

describe('platform.problem', () => {
  it('reaches a webhook of the platform once a day, when the newest backup is old', async () => {
    const read = await listen('platform.problem');
    const clock = stopClock();
    const { api } = scene;
    let backupHours = 36;
    const parts: unknown = {
      foundation: { ...api, backups: { ageMs: () => backupHours * hourMs }, secrets: { trouble: () => null } },
      shared: { store: null },
      db: api.db,
      clock,
      log,
      dataDir: api.dataDir,
    };
    const { jobs } = createUpkeep(parts as UpkeepParts).part;
    const measure = () => runJob(jobs, 'measure disk, database and Redis');
    // The disk of the machine that runs this test may be full as well.
    const old = () => read().events.filter(({ data }) => data['problem'] === 'backup_old');
    await measure();
    expect(old()).toEqual([]);
    backupHours = 50;
    await measure();
    clock.turn(24 * hourMs - 1);
    await measure();
    const event = {
      type: 'platform.problem',
      timestamp: expect.any(String),
      organization_id: await platformId(),
      data: {
        problem: 'backup_old',
        text: 'The newest good backup is 50 hours old.',
        runbook: 'compose/runbooks.md#platformproblem',
      },
    };
    expect(old()).toEqual([event]);
    expect(new Set(read().hosts)).toEqual(new Set(['slow.example']));
    clock.turn(1);
    await measure();
    expect(old()).toEqual([event, event]);
  });
});
