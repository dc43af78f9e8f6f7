import { randomBytes } from 'node:crypto';
import {
  chmodSync,
  copyFileSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { connectDb, type Db } from '#base/database/connect-database.ts';
import { createLog } from '#base/log.ts';
import { createSecrets, type Sealed, type Secrets } from '#core/secrets/secrets.ts';
import { createTestDatabase } from '#test/database.ts';

let db: Db;
let drop: () => Promise<void>;
beforeAll(async () => {
  const database = await createTestDatabase();
  db = connectDb(database.url, { poolMax: 8 });
  drop = async () => {
    await db.close();
    await database.drop();
  };
});
afterAll(() => drop());

const folders: string[] = [];
const newFolder = (): string => {
  const folder = mkdtempSync(join(tmpdir(), 'hg-secrets-'));
  folders.push(folder);
  return folder;
};
afterEach(() => {
  for (const folder of folders.splice(0)) rmSync(folder, { recursive: true });
});
beforeEach(() => db.sql`truncate platform_keys`);

const newKey = (): Buffer => randomBytes(32);
const logLines: string[] = [];
const log = createLog('info', { write: (line: string) => void logLines.push(line) });

/** A gateway with these keys, or with those of the file in its folder. */
const gateway = (
  keys: readonly Buffer[] | null,
  dataDir: string = newFolder(),
  backupPassphrase: string | null = null,
): Secrets => createSecrets({ db, log, keys, dataDir, backupPassphrase });
const seal = (secrets: Secrets, text = 'a secret', purpose = 'test'): Promise<Sealed> =>
  db.orm.transaction((tx) => secrets.seal(tx, purpose, text));
const refused = { code: 'secrets_unavailable', status: 503 };

describe('sealing a secret', () => {
  it("fails with 503 secrets_unavailable when the gateway's key is not the one in use", async () => {
    await seal(gateway([newKey()]));
    await expect(seal(gateway([newKey()]))).rejects.toMatchObject(refused);
    await expect(seal(gateway([newKey(), newKey()]))).rejects.toMatchObject(refused);
    expect(await db.sql`select 1 from platform_keys`).toHaveLength(1);
  });

  it('fails on a gateway with another data folder, which creates no key of its own', async () => {
    const [one, other] = [newFolder(), newFolder()];
    const sealed = await seal(gateway(null, one));
    const second = gateway(null, other);
    await expect(seal(second)).rejects.toMatchObject(refused);
    expect(() => second.open('test', sealed)).toThrow(/has no key/);
    expect(() => statSync(join(other, 'platform.key'))).toThrow('ENOENT');
    copyFileSync(join(one, 'platform.key'), join(other, 'platform.key'));
    chmodSync(join(other, 'platform.key'), 0o600);
    expect(second.open('test', sealed)).toBe('a secret');
    expect((await seal(second)).keyId).toBe(sealed.keyId);
  });

  it.each([
    ['empty', ''],
    ['of words', 'not a key\n'],
    ['too short', `${randomBytes(31).toString('base64')}\n`],
    ['one good line and a bad one', `${randomBytes(32).toString('base64')}\nx\n`],
  ])('fails when platform.key is %s, and no error shows its content', async (_, text) => {
    const folder = newFolder();
    writeFileSync(join(folder, 'platform.key'), text, { mode: 0o600 });
    const error: unknown = await seal(gateway(null, folder)).catch((thrown: unknown) => thrown);
    expect(error).toMatchObject({ ...refused, message: expect.stringMatching(/platform\.key must contain one key/) });
    expect(error).not.toMatchObject({ message: expect.stringContaining(folder) });
    expect(readFileSync(join(folder, 'platform.key'), 'utf8')).toBe(text);
  });

  it('fails when other users can read platform.key', async () => {
    const folder = newFolder();
    writeFileSync(join(folder, 'platform.key'), `${newKey().toString('base64')}\n`);
    chmodSync(join(folder, 'platform.key'), 0o640);
    await expect(seal(gateway(null, folder))).rejects.toMatchObject({
      ...refused,
      message: expect.stringMatching(/0600/),
    });
  });
});

describe('opening a secret', () => {
  it('fails without its key, for another purpose, or when altered', async () => {
    const key = newKey();
    const secrets = gateway([key]);
    const sealed = await seal(secrets);
    expect(() => gateway([newKey()]).open('test', sealed)).toThrow(sealed.keyId);
    expect(() => secrets.open('another', sealed)).toThrow(/was changed in the database/);
    for (let at = 0; at < sealed.bytes.length; at += 1) {
      const bytes = Buffer.from(sealed.bytes);
      bytes[at] = (bytes[at] ?? 0) ^ 1;
      expect(() => secrets.open('test', { ...sealed, bytes })).toThrow(/was changed in the database/);
    }
    for (const length of [0, 5, 12, 27, 28]) {
      expect(() => secrets.open('test', { ...sealed, bytes: sealed.bytes.subarray(0, length) })).toThrow(
        /was changed in the database/,
      );
    }
    expect(secrets.open('test', sealed)).toBe('a secret');
  });
});

describe('the platform key', () => {
  it('is created in a file with mode 0600 when it is first needed', async () => {
    const folder = newFolder();
    const secrets = gateway(null, folder);
    await secrets.check();
    expect(await secrets.keyInUse()).toBeNull();
    expect(() => statSync(join(folder, 'platform.key'))).toThrow('ENOENT');
    const sealed = await seal(secrets);
    expect(statSync(join(folder, 'platform.key')).mode & 0o777).toBe(0o600);
    expect(readdirSync(folder)).toEqual(['platform.key']);
    expect(gateway(null, folder).open('test', sealed)).toBe('a secret');
    const key = Buffer.from(readFileSync(join(folder, 'platform.key'), 'utf8'), 'base64');
    expect(gateway([key]).open('test', sealed)).toBe('a secret');
    const stored = JSON.stringify(await db.sql`select * from platform_keys`);
    expect([stored.includes(key.toString('base64')), stored.includes(key.toString('hex'))]).toEqual([false, false]);
  });

  it('is the same for many gateways that need it for the first time at once', async () => {
    const folder = newFolder();
    const sealed = await Promise.all(Array.from({ length: 6 }, () => seal(gateway(null, folder))));
    expect(new Set(sealed.map(({ keyId }) => keyId)).size).toBe(1);
    const apart = await Promise.allSettled(Array.from({ length: 3 }, () => seal(gateway(null))));
    expect(apart.map(({ status }) => status)).toEqual(['rejected', 'rejected', 'rejected']);
  });

  it('changes when another is put first, and does not change back when gateways have another order', async () => {
    const [old, fresh] = [newKey(), newKey()];
    const before = await seal(gateway([old]));
    expect((await seal(gateway([old, fresh]))).keyId).toBe(before.keyId);
    const rotated = gateway([fresh, old]);
    const after = await seal(rotated);
    expect(after.keyId).not.toBe(before.keyId);
    expect(rotated.open('test', before)).toBe('a secret');
    expect((await seal(gateway([old, fresh]))).keyId).toBe(after.keyId);
    expect(await gateway([old, fresh]).keyInUse()).toBe(after.keyId);
    await expect(seal(gateway([old]))).rejects.toMatchObject(refused);
    expect((await seal(gateway([fresh]))).keyId).toBe(after.keyId);
  });

  it('takes effect without a restart when it is added to the file', async () => {
    const folder = newFolder();
    const secrets = gateway(null, folder);
    const before = await seal(secrets);
    const path = join(folder, 'platform.key');
    writeFileSync(path, `# new\n${newKey().toString('base64')}\n${readFileSync(path, 'utf8')}`);
    expect((await seal(secrets)).keyId).not.toBe(before.keyId);
    expect(secrets.open('test', before)).toBe('a secret');
  });

  it('is logged once when it is wrong, and once when it is right again', async () => {
    const key = newKey();
    await seal(gateway([key]));
    const folder = newFolder();
    const secrets = gateway(null, folder);
    logLines.splice(0);
    await secrets.check();
    await secrets.check();
    expect(logLines.map((line) => JSON.parse(line).trouble)).toEqual([expect.stringMatching(/has no key/)]);
    writeFileSync(join(folder, 'platform.key'), `${key.toString('base64')}\n`, { mode: 0o600 });
    await secrets.check();
    expect(logLines).toHaveLength(2);
    expect(logLines.join('')).not.toContain(key.toString('base64'));
  });
});

describe('a backup passphrase', () => {
  const passphrase = 'twenty characters and more';
  const logged = () => logLines.map((line) => JSON.parse(line));

  it("restores the keys on a gateway that has only the database, and keeps the gateway's own keys", async () => {
    const old = newFolder();
    const first = gateway(null, old, passphrase);
    const before = await seal(first, 'sealed by the older key');
    const path = join(old, 'platform.key');
    writeFileSync(path, `${newKey().toString('base64')}\n${readFileSync(path, 'utf8')}`);
    const after = await seal(first, 'sealed by the newer key');
    await first.check();
    const keys = readFileSync(path, 'utf8');
    const stored = JSON.stringify(
      await db.sql`select id, encode(sealed, 'base64') as a, encode(sealed, 'hex') as b
      from platform_keys`,
    );
    for (const key of keys.trim().split('\n')) {
      expect(stored).not.toContain(key.slice(0, 40));
      expect(stored).not.toContain(Buffer.from(key, 'base64').toString('hex'));
    }

    const empty = newFolder();
    const own = newKey();
    writeFileSync(join(empty, 'platform.key'), `${own.toString('base64')}\n`, { mode: 0o600 });
    const second = gateway(null, empty, passphrase);
    await second.check();
    expect(second.open('test', before)).toBe('sealed by the older key');
    expect(second.open('test', after)).toBe('sealed by the newer key');
    expect(await second.keyInUse()).toBe(after.keyId);
    expect(readFileSync(join(empty, 'platform.key'), 'utf8')).toBe(`${keys}${own.toString('base64')}\n`);
    expect(statSync(join(empty, 'platform.key')).mode & 0o777).toBe(0o600);
    expect(readdirSync(empty)).toEqual(['platform.key']);
  });

  it('opens nothing when it is different, and the log reports it', async () => {
    const first = gateway(null, newFolder(), passphrase);
    await seal(first);
    await first.check();
    const empty = newFolder();
    logLines.splice(0);
    await gateway(null, empty, 'another passphrase entirely').check();
    expect(logged()).toEqual([
      expect.objectContaining({ trouble: expect.stringContaining('HEADGATE_BACKUP_PASSPHRASE does not decrypt') }),
    ]);
    expect(readdirSync(empty)).toEqual([]);
  });

  it('seals a new copy when it changes', async () => {
    const folder = newFolder();
    const sealed = await seal(gateway(null, folder, passphrase));
    await gateway(null, folder, passphrase).check();
    await gateway(null, folder, 'the passphrase of tomorrow').check();
    const restored = gateway(null, newFolder(), 'the passphrase of tomorrow');
    await restored.check();
    expect(restored.open('test', sealed)).toBe('a secret');
  });

  it('seals a copy of a new first key in the check that brings the key into use', async () => {
    const [old, fresh] = [newKey(), newKey()];
    await seal(gateway([old]));
    await gateway([fresh, old], newFolder(), passphrase).check();
    const carried = await db.sql`select sealed is not null as carried from platform_keys order by position`;
    expect(carried.map(({ carried: is }) => is)).toEqual([true, true]);
  });

  it('stores no copy when it is not set', async () => {
    const secrets = gateway(null);
    await seal(secrets);
    await secrets.check();
    expect(await db.sql`select 1 from platform_keys where sealed is not null`).toHaveLength(0);
  });
});
