import { randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { verified } from '#test/alerts/receiver.ts';
import { hourMs, useScene } from '#test/alerts/scene.ts';

const scene = useScene();
const { ask, deliver, listed, make, read, spent } = scene;

const last = () => {
  const got = scene.receiver.got.at(-1);
  if (got === undefined) throw new Error('nothing came');
  return got;
};

describe('webhook secrets', () => {
  it('are encrypted with a new platform key, and sign as before', async () => {
    const { api, receiver } = scene;
    const webhook = await make();
    const rotated = (await ask(`/v1/webhooks/${webhook.id}/rotate`, 'POST', { grace_seconds: 86_400 })).body;
    const [old] = await api.db.sql<{ id: string }[]>`select id from platform_keys`;

    const former = Buffer.from(readFileSync(`${api.dataDir}/platform.key`, 'utf8').trim(), 'base64');
    const fresh = randomBytes(32);
    const webhooks = { outbound: receiver.outbound };
    const both = api.secondRooms({ platformKeys: [fresh, former], webhooks }).alerts;
    await both.reseal();
    const rows = await api.db.sql<{ ids: string[] }[]>`
      select jsonb_build_array(secret_key_id, former_key_id) as ids from webhook_endpoints`;
    expect(rows).toHaveLength(1);
    expect(rows[0]?.ids.includes(old?.id ?? '')).toBe(false);
    // The old one can go.
    const alone = api.secondRooms({ platformKeys: [fresh], webhooks }).alerts;
    await alone.raise(spent());
    await deliver(alone);
    for (const { secret } of [webhook, rotated]) verified(secret, last());
  });

  it('without their platform key send nothing unsigned; the delivery waits and the webhook is not failing', async () => {
    const { api, receiver } = scene;
    const webhook = await make();
    const other = api.secondRooms({
      platformKeys: [randomBytes(32)],
      webhooks: { outbound: receiver.outbound },
    }).alerts;
    await api.alerts.raise(spent());
    await deliver(other);
    expect(receiver.got).toEqual([]);
    expect(await listed(webhook)).toMatchObject([{ status: 'pending', last_error: 'secret' }]);
    expect(await read(webhook)).toMatchObject({ failing_since: null });
    api.turnClock(hourMs);
    await deliver();
    verified(webhook.secret, last());
  });
});
