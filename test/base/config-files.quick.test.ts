import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ownVariables, readSecretFiles } from '#base/config/files.ts';

let folder = '';
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'headgate-secrets-'));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

function secret(text: string): string {
  const path = join(folder, `secret-${Math.random()}`);
  writeFileSync(path, text);
  return path;
}

const url = 'postgres://headgate@postgres:5432/headgate';

describe('a secret in a file', () => {
  it.each([
    ['that is not there', '/nowhere/at/all', 'REDIS_URL_FILE: /nowhere/at/all cannot be read'],
    ['that is a folder', '/tmp', 'REDIS_URL_FILE: /tmp cannot be read'],
    ['that is endless', '/dev/zero', 'REDIS_URL_FILE: /dev/zero'],
  ])('is rejected %s', (_what, path, sentence) => {
    expect(() => readSecretFiles({ REDIS_URL_FILE: path })).toThrow(sentence);
  });

  it('is rejected when it has several lines or a NUL', () => {
    for (const text of ['a\nb', 'a\0', '\n\n']) {
      expect(() => readSecretFiles({ HEADGATE_BOOTSTRAP_KEY_FILE: secret(text) })).toThrow(
        'must contain exactly one line',
      );
    }
  });

  it('is rejected when the variable itself is also set', () => {
    const both = { HEADGATE_BOOTSTRAP_KEY: 'x', HEADGATE_BOOTSTRAP_KEY_FILE: secret('y') };
    expect(() => readSecretFiles(both)).toThrow('HEADGATE_BOOTSTRAP_KEY is also set');
    const password = { DATABASE_URL: 'postgres://a:b@c/d', POSTGRES_PASSWORD_FILE: secret('y') };
    expect(() => readSecretFiles(password)).toThrow(
      'POSTGRES_PASSWORD_FILE: DATABASE_URL also has a password; remove it from the URL, or remove POSTGRES_PASSWORD_FILE.',
    );
    // As a compose file on top of compose.yaml says that neither of the values there applies.
    const whole = { DATABASE_URL: '', DATABASE_URL_FILE: secret('postgres://a:b@c/d\n'), POSTGRES_PASSWORD_FILE: '' };
    expect(readSecretFiles(whole)).toMatchObject({ DATABASE_URL: 'postgres://a:b@c/d' });
  });

  it('never appears in an error', () => {
    const path = secret('hunter2\nhunter2');
    expect(() => readSecretFiles({ REDIS_URL_FILE: path })).not.toThrow('hunter2');
  });

  it('becomes the value of its variable without the line end, and an empty setting counts as unset', () => {
    const read = readSecretFiles({ REDIS_URL_FILE: secret('redis://r\n'), HF_TOKEN_FILE: secret(''), PORT: '1' });
    expect(read).toEqual({ REDIS_URL: 'redis://r', HF_TOKEN: '', PORT: '1' });
    expect(readSecretFiles({ REDIS_URL: 'redis://r', REDIS_URL_FILE: '' })).toEqual({ REDIS_URL: 'redis://r' });
  });

  it('completes the database URL, for any characters in the password', () => {
    const password = `a%b@c/ d':é`;
    const read = readSecretFiles({ DATABASE_URL: url, POSTGRES_PASSWORD_FILE: secret(`${password}\n`) });
    expect(decodeURIComponent(new URL(read['DATABASE_URL'] ?? '').password)).toBe(password);
    expect(() => readSecretFiles({ DATABASE_URL: url, POSTGRES_PASSWORD_FILE: secret('') })).toThrow('is empty');
    expect(readSecretFiles({ POSTGRES_PASSWORD_FILE: '/nowhere' })).toHaveProperty('POSTGRES_PASSWORD_FILE');
  });

  it('does not replace settings that take a path, nor the standard paths of other programs', () => {
    const paths = { HEADGATE_STATEMENT_KEY_FILE: '/run/secrets/key', SSL_CERT_FILE: '/etc/ssl/cert.pem' };
    expect(readSecretFiles(paths)).toEqual(paths);
    expect(() => readSecretFiles({ UPSTREAM_KEY_FILE: '/run/secrets/nothing-there' })).toThrow('UPSTREAM_KEY_FILE');
  });

  it('is not read for a program that does not use its variable', () => {
    const environment = { REDIS_URL_FILE: '/nowhere', HEADGATE_URL: 'http://a', HEADGATE_API_KEY_FILE: secret('k') };
    const own = ownVariables(environment, { HEADGATE_URL: true, HEADGATE_API_KEY: true });
    expect(readSecretFiles(own)).toEqual({ HEADGATE_URL: 'http://a', HEADGATE_API_KEY: 'k' });
  });
});
