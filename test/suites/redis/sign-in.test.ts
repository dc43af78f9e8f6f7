import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { cookieOf, passwordOf, send, sendForm } from '#test/portal/visitor.ts';
import { type Cluster, startCluster } from '#test/redis/gateway-cluster.ts';

/** Two gateways behind one proxy: a guesser may be sent to either. */

let gateways: Cluster;
beforeAll(async () => {
  gateways = await startCluster({ count: 0 });
  for (let made = 0; made < 2; made += 1) await gateways.start({ HEADGATE_TRUSTED_PROXIES: '127.0.0.1' });
});
afterAll(() => gateways.stop());

async function makePerson(): Promise<{ readonly id: string; readonly email: string }> {
  const email = `${randomUUID()}@example.com`;
  const made = await gateways.ask(0, '/v1/users', { body: { name: 'Ada', email, password: passwordOf } });
  expect(made.status).toBe(201);
  return { id: ((await made.json()) as { id: string }).id, email };
}

interface Guess {
  readonly email: string;
  readonly password?: string;
  /** As the proxy says it. */
  readonly from: string;
}

const urlOf = (which: number): string => gateways.gateways[which]?.url ?? '';

const signIn = (which: number, { email, password = 'a wrong one', from }: Guess) =>
  sendForm(urlOf(which), '/sign-in', { email, password }, { 'x-forwarded-for': from });

describe('two gateways', () => {
  it('count wrong passwords of an account together, from any address, and say when to try again', async () => {
    const { email, seen } = await gateways.undisturbed(async () => {
      const person = await makePerson();
      const statuses: number[] = [];
      for (let guess = 0; guess < 11; guess += 1) {
        statuses.push((await signIn(guess % 2, { ...person, from: `10.1.${guess}.1` })).status);
      }
      return { ...person, seen: statuses };
    });
    expect(seen).toEqual([...Array.from({ length: 10 }, () => 403), 429]);
    for (const which of [0, 1]) {
      const refused = await signIn(which, { email, password: passwordOf, from: '10.1.99.1' });
      expect([refused.status, refused.headers['set-cookie']]).toEqual([429, undefined]);
      expect(Number(refused.headers['retry-after'])).toBeGreaterThan(0);
    }
  });

  it('allow one address thirty guesses in total, for any account', async () => {
    let tries = 0;
    const { from, statuses } = await gateways.undisturbed(async () => {
      tries += 1;
      const address = `10.2.${tries}.1`;
      const guesses = Array.from({ length: 50 }, (_, guess) =>
        signIn(guess % 2, { email: `${randomUUID()}@example.com`, from: address }),
      );
      return { from: address, statuses: (await Promise.all(guesses)).map(({ status }) => status) };
    });
    expect(statuses.filter((status) => status !== 429)).toHaveLength(30);
    const { email } = await makePerson();
    for (const which of [0, 1]) {
      expect((await signIn(which, { email, password: passwordOf, from })).status).toBe(429);
      expect((await signIn(which, { email, password: passwordOf, from: '10.2.0.1' })).status).toBe(303);
    }
  });

  it('share sessions: one that ends on one gateway has ended on the other', async () => {
    const { id, email } = await makePerson();
    const sessionOf = async (which: number): Promise<string> =>
      cookieOf(await signIn(which, { email, password: passwordOf, from: '10.3.0.1' }));
    const isIn = async (which: number, cookie: string): Promise<boolean> =>
      (await send(`${urlOf(which)}/`, { headers: { accept: 'text/html', cookie } })).text.includes('Sign out');
    const port = (which: number): string => new URL(urlOf(which)).port;
    /** The cookie bears the port of its gateway, where that is the one that a browser asks. */
    const movedTo = (which: number, cookie: string): string => cookie.replace(/-\d+=/, `-${port(which)}=`);
    const [first, second] = [await sessionOf(0), await sessionOf(1)];
    expect([await isIn(1, movedTo(1, first)), await isIn(0, movedTo(0, second))]).toEqual([true, true]);
    const changed = await gateways.ask(0, `/v1/users/${id}`, { method: 'PUT', body: { password: 'another horse' } });
    expect(changed.status).toBe(200);
    for (const [which, cookie] of [
      [0, first],
      [1, second],
    ] as const) {
      expect([await isIn(which, cookie), await isIn(1 - which, movedTo(1 - which, cookie))]).toEqual([false, false]);
    }
  });
});
