import { once } from 'node:events';
import { describe, expect, it } from 'vitest';
import { makePerson, type Person, signInPerson, type Visitor } from '#test/portal/visitor.ts';
import { type Exposed, useWebGateway } from '#test/web/web-gateway.ts';

/** Addresses for members that somebody opened from the portal: they are open for as long as that session lasts. */

const web = useWebGateway();

interface Entered {
  readonly person: Person;
  readonly visitor: Visitor;
  readonly address: Exposed;
  readonly cookie: string;
}

const linkIn = (text: string): string => {
  const link = /https:\/\/[^"<>\s]+\?link=[A-Za-z0-9_-]+/.exec(text)?.[0];
  if (link === undefined) throw new Error(text);
  const { pathname, search } = new URL(link);
  return pathname + search;
};

async function open({ run, host }: Exposed, visitor: Visitor): Promise<string> {
  const shown = await visitor.post(`/portal/runs/${run.id}/open`);
  const link = linkIn(`${String(shown.headers['location'])} ${shown.text}`);
  const { headers } = await web.get(host, link, {}, 'POST');
  return headers['set-cookie']?.[0]?.split(';')[0] ?? '';
}

async function enter(): Promise<Entered> {
  const address = await web.exposed(await web.application(), { access: 'members' });
  const person = await makePerson(web.gateway, {}, web.organization.key);
  const visitor = await signInPerson(web.gateway, person.email);
  return { person, visitor, address, cookie: await open(address, visitor) };
}

const statusOf = async ({ address, cookie }: Pick<Entered, 'address' | 'cookie'>): Promise<number> =>
  (await web.get(address.host, '/', { cookie })).status;

const signOut = ({ visitor }: Entered): Promise<unknown> => visitor.post('/portal/sign-out');
const ends: readonly [string, (entered: Entered) => Promise<unknown>][] = [
  ['its user signs out', signOut],
  [
    'its user gets another password',
    ({ person }) =>
      web.ask(`/v1/users/${person.id}`, {
        method: 'PUT',
        body: { password: 'another good password' },
        key: web.organization.key,
      }),
  ],
  [
    'its user is no member any more',
    ({ person }) => web.ask(`/v1/users/${person.id}`, { method: 'DELETE', key: web.organization.key }),
  ],
  [
    'it expires',
    ({ person }) => web.gateway.db.sql`
      update sessions set expires_at = now() - interval '1 second' where user_id = (select id from users where email = ${person.email})`,
  ],
];

describe('access by a session', () => {
  it.each(ends)('ends when %s, with its websocket', async (_, end) => {
    const entered = await enter();
    const { address, cookie } = entered;
    expect(await statusOf(entered)).toBe(200);
    const { status, socket } = await web.websocket(address.host, { cookie });
    expect(status).toBe('101');
    const closed = once(socket, 'close');
    await end(entered);
    expect(await statusOf(entered)).toBe(401);
    await closed;
  });

  it('stays when another session of the user ends', async () => {
    const entered = await enter();
    const other = await signInPerson(web.gateway, entered.person.email);
    const cookie = await open(entered.address, other);
    await signOut(entered);
    expect([await statusOf(entered), await statusOf({ ...entered, cookie })]).toEqual([401, 200]);
  });

  it('ends when its session is unknown', async () => {
    const entered = await enter();
    await web.gateway.db.sql`update exposure_entrances set session_id = null`;
    expect(await statusOf(entered)).toBe(401);
  });

  it('is not opened by a link of a session that has ended', async () => {
    const { visitor, address } = await enter();
    const shown = await visitor.post(`/portal/runs/${address.run.id}/open`);
    await visitor.post('/portal/sign-out');
    const link = linkIn(`${String(shown.headers['location'])} ${shown.text}`);
    expect((await web.get(address.host, link, {}, 'POST')).status).toBe(403);
  });
});
