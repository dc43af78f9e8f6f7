import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { chapterLines, paste, rotateChapter } from '#test/chapter-lines.ts';
import { createTestDatabase, type TestDatabase } from '#test/database.ts';
import { freePort } from '#test/free-port.ts';
import { startGateway, type TestGateway } from '#test/gateway.ts';
import { startMailServer } from '#test/mail.ts';
import { startOidcServer } from '#test/oidc.ts';
import { browse, makePerson, sendForm } from '#test/portal/visitor.ts';

/** The lines of compose/rotate.md, in a folder that has the secrets where a clone has them. */

let clone: string;
let database: TestDatabase;
let gateway: TestGateway | null = null;
beforeEach(async () => {
  clone = mkdtempSync(join(tmpdir(), 'hg-clone-'));
  mkdirSync(join(clone, 'compose/secrets'), { recursive: true });
  database = await createTestDatabase();
});
afterEach(async () => {
  await gateway?.stop();
  gateway = null;
  await database.drop();
  rmSync(clone, { recursive: true });
});

const secretFile = (name: string): string => join(clone, 'compose/secrets', name);

/** Starts the gateway, or starts it again. */
async function start(env: Readonly<Record<string, string>>): Promise<TestGateway> {
  await gateway?.stop();
  const key = `sk-hg-${'k'.repeat(40)}`;
  gateway = await startGateway({ databaseUrl: database.url, env: { HEADGATE_BOOTSTRAP_KEY: key, ...env } });
  return gateway;
}

describe('the chapter on changing secrets', () => {
  it.for(['Hugging Face token', 'Mail server', 'OIDC client secret'])(
    'keeps the current secret when nothing is pasted, and the old one until it is deleted: %s',
    async (heading) => {
      const [change = ''] = chapterLines(rotateChapter, heading);
      const [, name = ''] = /> compose\/secrets\/(\w+)$/m.exec(change) ?? [];
      writeFileSync(secretFile(name), 'first\n');
      await expect(paste(change, clone, '\n')).rejects.toThrow('Command failed');
      expect(readFileSync(secretFile(name), 'utf8')).toBe('first\n');
      await paste(change, clone, 'second\n');
      await expect(paste(change, clone, 'third\n')).rejects.toThrow('cannot overwrite existing file');
      expect(readFileSync(secretFile(name), 'utf8')).toBe('second\n');
      expect(readFileSync(secretFile(`${name}.old`), 'utf8')).toBe('first\n');
    },
  );

  it('names the old backup passphrase by the date of its change', async () => {
    writeFileSync(secretFile('backup_passphrase'), 'first\n');
    const [change = ''] = chapterLines(rotateChapter, 'Passphrase of backups');
    await paste(change, clone);
    const kept = readdirSync(join(clone, 'compose/secrets')).filter((name) =>
      /_passphrase\.\d{4}-\d\d-\d\d$/.test(name),
    );
    expect(kept).toHaveLength(1);
    expect(readFileSync(secretFile(kept[0] ?? ''), 'utf8')).toBe('first\n');
    expect(readFileSync(secretFile('backup_passphrase'), 'utf8')).toMatch(/^[0-9a-f]{48}\n$/);
  });

  it('changes the login of the mail server', async () => {
    const passwords = new Set(['old-password']);
    const mail = await startMailServer(passwords);
    const urlWith = (password: string): string => mail.url.replace('//', `//headgate:${password}@`);
    writeFileSync(secretFile('smtp_url'), `${urlWith('old-password')}\n`);
    const env = { HEADGATE_SMTP_URL_FILE: secretFile('smtp_url'), HEADGATE_PUBLIC_URL: 'https://gateway.example.com' };
    const { email } = await makePerson(await start(env));
    const askForLink = (): Promise<unknown> => sendForm(gateway?.url ?? '', '/sign-in/forgot', { email });
    await askForLink();
    await mail.next(email);

    passwords.add('new-p@ssword');
    const [change = ''] = chapterLines(rotateChapter, 'Mail server');
    await paste(change, clone, `${urlWith('new-p%40ssword')}\n`);
    expect(readFileSync(secretFile('smtp_url.old'), 'utf8')).toBe(`${urlWith('old-password')}\n`);
    await start(env);
    passwords.delete('old-password');
    await askForLink();
    await mail.next(email);
    await mail.stop();
  });

  it('changes the secret of the OIDC client', async () => {
    const [own, port] = [await freePort(), await freePort()];
    const url = `http://127.0.0.1:${own}`;
    const startProvider = (clientSecret: string) =>
      startOidcServer(`${url}/sign-in/oidc/callback`, { clientSecret, port });
    let provider = await startProvider('old-secret');
    writeFileSync(secretFile('oidc_client_secret'), 'old-secret\n');
    const env = {
      PORT: String(own),
      HEADGATE_PUBLIC_URL: url,
      HEADGATE_OIDC_ISSUER: provider.issuer,
      HEADGATE_OIDC_CLIENT_ID: provider.clientId,
      HEADGATE_OIDC_CLIENT_SECRET_FILE: secretFile('oidc_client_secret'),
    };
    const { email } = await makePerson(await start(env));
    const signIn = async (): Promise<number> => {
      provider.person = { sub: 'ada', email, email_verified: true };
      return (await browse(`${url}/sign-in/oidc?next=${encodeURIComponent('/portal/account')}`)).status;
    };
    expect(await signIn()).toBe(200);

    await provider.stop();
    provider = await startProvider('new-secret');
    expect(await signIn()).not.toBe(200);
    const [change = ''] = chapterLines(rotateChapter, 'OIDC client secret');
    await paste(change, clone, 'new-secret\n');
    await start(env);
    expect(await signIn()).toBe(200);
    await provider.stop();
  });
});
