import { expect, it } from 'vitest';
import { connectDb } from '#base/database/connect-database.ts';
import { type LocalReceiver, startLocalReceiver } from '#test/alerts/local-receiver.ts';
import { idOf, verified } from '#test/alerts/receiver.ts';
import { useProcesses } from '#test/programs/gateway-process.ts';

const processes = useProcesses();
const key = `sk-hg-${'k'.repeat(40)}`;

interface Made {
  readonly id: string;
  readonly secret: string;
}

async function make(url: string, path: string, body: object): Promise<Made> {
  const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json' };
  const answer = await fetch(new URL(path, url), { method: 'POST', headers, body: JSON.stringify(body) });
  if (!answer.ok) throw new Error(await answer.text());
  return (await answer.json()) as Made;
}

async function withReceiver(run: (receiver: LocalReceiver) => Promise<void>): Promise<void> {
  const receiver = await startLocalReceiver();
  try {
    await run(receiver);
  } finally {
    await receiver.close();
  }
}

it('delivers the interrupted and the waiting event of a killed gateway from the next gateway', () =>
  withReceiver(async (receiver) => {
    const [home, databaseUrl] = [processes.home(), await processes.database()];
    const env = { HEADGATE_BOOTSTRAP_KEY: key, HEADGATE_WEBHOOK_HOSTS: receiver.host };
    const killed = processes.run({ home, databaseUrl, env });
    const url = await killed.url();
    const webhook = await make(url, '/v1/webhooks', { url: receiver.url, events: ['api_key.created'] });
    receiver.status = null;
    await make(url, '/v1/keys', { name: 'first' });
    await expect.poll(() => receiver.got.length).toBe(1);
    await make(url, '/v1/keys', { name: 'second' });
    killed.signal('SIGKILL');
    await killed.exited;

    receiver.status = 204;
    const before = receiver.got.length;
    const db = connectDb(databaseUrl);
    // As if the minute had passed after which a gateway that is not heard of is taken for dead.
    await db.sql`update alert_deliveries set next_attempt_at = now() where status = 'pending'`;
    await db.close();
    await processes.run({ home, databaseUrl, env }).url();
    const names = (): string[] =>
      receiver.got.slice(before).map((got) => (verified(webhook.secret, got) as { data: { name: string } }).data.name);
    await expect.poll(() => names().toSorted()).toEqual(['first', 'second']);
    const first = receiver.got.filter(({ body }) => body.includes('"first"'));
    expect([first.length, new Set(first.map(idOf)).size]).toEqual([2, 1]);
  }));
