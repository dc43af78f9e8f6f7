import { expect, it } from 'vitest';
import { createEngineAlertsPart } from '#app/alerts.ts';
import type { EngineView } from '#core/fleet/fleet.ts';
import { createTurnableClock, useApi } from '../edge/api/test-api.ts';

const api = useApi();

it('who runs the platform is told of an engine that failed, once an hour at most, whichever gateway looks', async () => {
  const clock = createTurnableClock();
  const engine = (engineId: string, phase: string, cause: string | null) => ({ engineId, phase, cause }) as EngineView;
  const views = [engine('chat', 'failed', 'The GPU is full.'), engine('embed', 'ready', null)];
  const { accounts, alerts } = api();
  const look = async (): Promise<void> => {
    const part = createEngineAlertsPart({ fleet: { list: () => views }, accounts, raising: alerts, clock });
    await part.jobs?.[0]?.run();
  };
  const told = () => api().db.sql`
    select o.platform, e.data from alert_events e join organizations o on o.id = e.organization_id
    where e.type = 'engine.failed' order by e.id`;
  const one = { platform: true, data: { engine: 'chat', cause: 'The GPU is full.' } };
  await look();
  await look();
  expect(await told()).toEqual([one]);
  clock.turn(3_600_000);
  await look();
  expect(await told()).toEqual([one, one]);
});
