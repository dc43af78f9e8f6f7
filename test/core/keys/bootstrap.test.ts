import { afterAll, beforeEach, describe, expect, it } from 'vitest';
import { systemClock } from '#base/clock.ts';
import { connectDb, type Db } from '#base/database/connect-database.ts';
import { createLog } from '#base/log.ts';
import { createAccounts, verifyPassword } from '#core/accounts/accounts.ts';
import { createAudit } from '#core/audit/audit.ts';
import { createKeys, createOrganizations, type FirstStart } from '#core/keys/keys.ts';
import { createWallet, createWalletOpening } from '#core/wallet/wallet.ts';
import { createHttpGuards } from '#edge/http/http.ts';
import { createTestDatabase } from '#test/database.ts';

const start: FirstStart = { email: null, password: null, key: null };

function createRooms(db: Db, creditPicoUsd = 10_000_000_000_000n) {
  const [clock, log] = [systemClock, createLog('silent')];
  const audit = createAudit({ clock });
  const accounts = createAccounts({ db, clock, log, audit });
  const keys = createKeys({ db, clock, log, audit, accounts, keyPrefix: 'sk-hg-', maxActiveKeys: 5 });
  const wallet = createWallet({ db, clock, audit });
  accounts.onOpening(createWalletOpening(wallet, creditPicoUsd));
  const organizations = createOrganizations({ db, accounts, keys });
  return { db, accounts, keys, wallet, bootstrap: (from: FirstStart) => organizations.bootstrap(from) };
}

describe('the first start', () => {
  const closers: (() => Promise<void>)[] = [];
  let url = '';
  const gateway = (creditPicoUsd?: bigint) => {
    const db = connectDb(url, { poolMax: 3 });
    closers.push(() => db.close());
    return createRooms(db, creditPicoUsd);
  };

  beforeEach(async () => {
    const database = await createTestDatabase();
    url = database.url;
    closers.push(() => database.drop());
  });

  afterAll(async () => {
    for (const close of closers) await close();
  });

  it('leaves nothing when it fails midway, and the next start creates everything', async () => {
    const rooms = gateway();
    const broken = gateway();
    broken.accounts.onOpening(() => Promise.reject(new Error('killed here')));
    await expect(broken.bootstrap(start)).rejects.toThrow('killed here');
    const [counts] = await rooms.db.sql`select (select count(*) from organizations)::int as organizations,
      (select count(*) from users)::int as users, (select count(*) from wallets)::int as wallets,
      (select count(*) from audit_log)::int as audit`;
    expect(counts).toEqual({ organizations: 0, users: 0, wallets: 0, audit: 0 });
    expect(await rooms.bootstrap(start)).toEqual({ created: true, secret: expect.any(String), ignored: [] });
  });

  it('happens once when several gateways start at the same time', async () => {
    const first = gateway();
    const results = await Promise.all([first, gateway(), gateway()].map((rooms) => rooms.bootstrap(start)));
    expect(results.filter(({ created }) => created)).toHaveLength(1);
    expect(results.filter(({ secret }) => secret !== null)).toHaveLength(1);
    const [counts] = await first.db.sql`select (select count(*) from organizations)::int as organizations,
      (select count(*) from api_keys)::int as keys, (select sum(balance) from wallets)::text as balance`;
    expect(counts).toEqual({ organizations: 1, keys: 1, balance: '10000000000000' });
  });

  it('creates an administrator with a working management key and 10 USD', async () => {
    const rooms = gateway();
    const { secret } = await rooms.bootstrap(start);
    await rooms.keys.start();
    const key = await rooms.keys.verify(secret ?? '');
    expect(key).toMatchObject({ scope: 'management', platformAdmin: true, expiresAtMs: null });
    const organizationId = key?.organizationId ?? '';
    expect(await rooms.accounts.findProject(organizationId, key?.projectId ?? '')).toMatchObject({ name: 'default' });
    expect(await rooms.wallet.balance(organizationId)).toBe(10_000_000_000_000n);
    const rows = await rooms.db.sql`select actor_user_id, actor_key_id from audit_log`;
    expect(rows.length).toBeGreaterThanOrEqual(4);
    expect(rows.every((row) => row['actor_user_id'] === null && row['actor_key_id'] === null)).toBe(true);
    const [admin] = await rooms.db.sql`select email, password_hash, platform_role from users`;
    expect(admin).toEqual({ email: 'admin@localhost', password_hash: null, platform_role: 'admin' });
  });

  it('uses the configured email, password and key, and does not return the key', async () => {
    const rooms = gateway(0n);
    const chosen = {
      email: 'Ops@example.com',
      password: 'correct horse',
      key: `!${'k~'.repeat(20)}`,
    };
    expect(await rooms.bootstrap(chosen)).toEqual({ created: true, secret: null, ignored: [] });
    expect(await rooms.keys.verify(chosen.key)).toMatchObject({ scope: 'management', platformAdmin: true });
    // The same settings at a later start are what is there.
    expect(await rooms.bootstrap(chosen)).toEqual({ created: false, secret: null, ignored: [] });
    const [admin] = await rooms.db.sql`select email, password_hash from users`;
    expect(admin?.['email']).toBe('Ops@example.com');
    expect(admin?.['password_hash']).toMatch(/^\$argon2id\$v=19\$m=19456,t=2,p=1\$[^$]+\$[^$]+$/);
    expect(await verifyPassword('correct horse', admin?.['password_hash'])).toBe(true);
    expect(await verifyPassword('correct horsf', admin?.['password_hash'])).toBe(false);
  });

  it('changes nothing the second time, reports ignored settings, and accepts the first key after a restart', async () => {
    const key = 'k'.repeat(32);
    await gateway().bootstrap({ ...start, key });
    const rooms = gateway();
    const other = { ...start, email: 'other@example.com', key: 'o'.repeat(32) };
    expect(await rooms.bootstrap(other)).toEqual({ created: false, secret: null, ignored: ['email', 'key'] });
    expect(await rooms.bootstrap({ ...start, email: 'ADMIN@localhost', key, password: 'never set' })).toEqual({
      created: false,
      secret: null,
      ignored: ['password'],
    });
    await rooms.keys.start();
    expect(await rooms.keys.verify(key)).toMatchObject({ scope: 'management' });
    expect(rooms.keys.verify(other.key)).toBeNull();
    const [counts] = await rooms.db.sql`select (select count(*) from users)::int as users,
      (select count(*) from api_keys)::int as keys, (select count(*) from ledger_entries)::int as entries`;
    expect(counts).toEqual({ users: 1, keys: 1, entries: 1 });
  });

  it('accepts a key with every printable character, over HTTP too', async () => {
    const rooms = gateway();
    const key = Array.from({ length: 94 }, (_, index) => String.fromCharCode(0x21 + index)).join('');
    await rooms.bootstrap({ ...start, key });
    const { authenticator } = createHttpGuards({
      ...rooms,
      budgetCache: { boundsProject: () => false },
      store: null,
      prefix: '',
      wrongKeysPerMinute: 60,
      trustedProxies: [],
      bodyBytesMax: 1024,
      bodiesBytesMax: 1024,
    });
    const caller = await authenticator.authenticate({ rawHeaders: ['Authorization', `Bearer ${key}`] });
    expect(caller).toMatchObject({ key: { name: 'Management key' }, project: { name: 'default' } });
  });

  it('creates a key that can be reported and revoked', async () => {
    const rooms = gateway();
    const key = 'k'.repeat(40);
    await rooms.bootstrap({ ...start, key });
    expect(await rooms.keys.report(key, null)).toBe(true);
    expect(await rooms.keys.verify(key)).toBeNull();
  });
});
