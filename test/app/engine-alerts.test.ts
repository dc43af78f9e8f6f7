import { expect, it } from 'vitest';
import { createEngineAlertsPart } from '#app/alerts.ts';
import type { Clock } from '#base/clock.ts';
import type { EngineView } from '#core/fleet/fleet.ts';
import { useApi } from '#test/api/test-api.ts';

const api = useApi();

const hourMs = 3_600_000;
const engine = (engineId: string, phase: string, cause: string | null) => ({ engineId, phase, cause }) as EngineView;

/** The job that one gateway runs every few seconds. @param failed id of an engine */
function openGateway(failed: string, clock: Clock): () => Promise<void> {
  const views = [engine(failed, 'failed', 'The GPU is full.'), engine('embed', 'ready', null)];
  const { accounts, alerts } = api();
  const part = createEngineAlertsPart({ fleet: { list: () => views }, accounts, raising: alerts, clock });
  return async () => {
    await part.jobs?.[0]?.run();
  };
}

const told = (failed: string) => api().db.sql`
  select o.platform, e.data from alert_events e join organizations o on o.id = e.organization_id
  where e.type = 'engine.failed' and e.data ->> 'engine' = ${failed} order by e.id`;

const saidOf = (failed: string) => ({ platform: true, data: { engine: failed, cause: 'The GPU is full.' } });

/** A clock that stands, so many milliseconds before the end of an hour. */
function stopClock(beforeEndMs: number) {
  let nowMs = Math.ceil(Date.now() / hourMs) * hourMs - beforeEndMs;
  return { now: () => nowMs, monotonicMs: () => nowMs, turn: (ms: number) => void (nowMs += ms) };
}

it('notifies the platform administrators of a failed engine at most once per hour, from any gateway', async () => {
  const clock = stopClock(hourMs / 2);
  const one = saidOf('chat');
  await openGateway('chat', clock)();
  await openGateway('chat', clock)();
  expect(await told('chat')).toEqual([one]);
  clock.turn(hourMs);
  await openGateway('chat', clock)();
  expect(await told('chat')).toEqual([one, one]);
});

it('sends no second alert just after the hour of the clock ends', async () => {
  const clock = stopClock(1000);
  const one = saidOf('large');
  const look = openGateway('large', clock);
  await look();
  clock.turn(2000);
  await look();
  expect(await told('large')).toEqual([one]);
  clock.turn(hourMs - 2001);
  await look();
  expect(await told('large')).toEqual([one]);
  clock.turn(1);
  await look();
  expect(await told('large')).toEqual([one, one]);
});
