import { expect, it } from 'vitest';
import { tellOfExpiring } from '#app/alerts.ts';
import { verified } from '#test/alerts/receiver.ts';
import { hourMs, useScene } from '#test/alerts/scene.ts';

const scene = useScene();
const { ask, deliver, make } = scene;
const dayMs = 24 * hourMs;

it('notifies an organization once of a key that expires soon, without its secret', async () => {
  const webhook = await make({ events: ['api_key.expiring'] });
  const look = async (): Promise<void> => {
    await tellOfExpiring(scene.api.keys, scene.api.alerts);
    await deliver();
  };
  const expires_at = Math.floor(Date.now() / 1000) + 30 * 86_400;
  const { body: key } = await ask('/v1/keys', 'POST', { name: 'month', expires_at });
  const { body: revoked } = await ask('/v1/keys', 'POST', { name: 'revoked', expires_at });
  expect((await ask(`/v1/keys/${revoked.id}`, 'DELETE')).status).toBe(200);
  await look();
  expect(scene.receiver.got).toEqual([]);
  scene.api.turnClock(24 * dayMs);
  for (let looked = 0; looked < 3; looked += 1) await look();
  expect(scene.receiver.got.map((one) => verified(webhook.secret, one))).toEqual([
    {
      type: 'api_key.expiring',
      timestamp: expect.any(String),
      organization_id: scene.tenant.id,
      data: {
        key_id: key.id,
        name: 'month',
        prefix: key.prefix,
        last4: key.last4,
        scope: 'inference',
        project_id: key.project_id,
        service_account_id: null,
        expires_at,
        by: null,
      },
    },
  ]);
  expect(scene.receiver.got[0]?.body).not.toContain(key.secret);
});
