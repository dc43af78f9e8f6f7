import { execFileSync } from 'node:child_process';
import { generateKeyPairSync } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { makeKeyPair, parseHostKey, parsePrivateKey } from '#core/clusters/ssh-keys.ts';

let folder = '';
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'hg-ssh-'));
});
afterAll(() => rmSync(folder, { recursive: true }));

let count = 0;
/** A key pair as ssh-keygen writes it: the private file's text and the public line. */
function keygen(...args: readonly string[]): { privateKey: string; publicKey: string } {
  const path = join(folder, `key-${(count += 1)}`);
  execFileSync('ssh-keygen', ['-q', '-N', '', '-C', 'a comment', ...args, '-f', path]);
  return { privateKey: readFileSync(path, 'utf8'), publicKey: readFileSync(`${path}.pub`, 'utf8').trim() };
}

/** Derives the public line of a private key by ssh-keygen, without the comment. */
function publicPartBySshKeygen(privateKey: string): string {
  const path = join(folder, `read-${(count += 1)}`);
  writeFileSync(path, privateKey, { mode: 0o600 });
  return execFileSync('ssh-keygen', ['-y', '-P', '', '-f', path], { encoding: 'utf8' })
    .trim()
    .split(' ')
    .slice(0, 2)
    .join(' ');
}

describe('an uploaded SSH private key', () => {
  it.each([
    ['nothing', ''],
    ['a word', 'secret'],
    ['a public key', () => keygen('-t', 'ed25519').publicKey],
    ['a key with a passphrase', () => keygen('-t', 'ed25519', '-N', 'passphrase').privateKey],
    [
      'an old PEM with a passphrase',
      () => keygen('-t', 'rsa', '-b', '2048', '-m', 'PEM', '-N', 'passphrase').privateKey,
    ],
    ['an RSA key that is too short', () => keygen('-t', 'rsa', '-b', '1024').privateKey],
    ['a PKCS #8 key', () => String(generateKeyPairSync('ed25519').privateKey.export({ type: 'pkcs8', format: 'pem' }))],
    ['a key for PuTTY', 'PuTTY-User-Key-File-3: ssh-ed25519\nEncryption: none\nComment: x\nPublic-Lines: 2\n'],
    ['a key that was cut', () => keygen('-t', 'ed25519').privateKey.split('\n').toSpliced(3, 1).join('\n')],
    ['text before the key', () => `x\n${keygen('-t', 'ed25519').privateKey}`],
    ['far too much', `-----BEGIN OPENSSH PRIVATE KEY-----\n${'A'.repeat(20_000)}\n-----END OPENSSH PRIVATE KEY-----`],
  ])('is rejected when it is %s, without being quoted', (_, text) => {
    const given = typeof text === 'string' ? text : text();
    const refusal = ((): string => {
      try {
        parsePrivateKey(given);
        return 'taken';
      } catch (error) {
        return error instanceof Error ? `${error.name}: ${error.message}` : 'thrown';
      }
    })();
    expect(refusal).toMatch(/^SshKeyError: /);
    for (const line of given.split('\n').filter((part) => part.length > 12)) expect(refusal).not.toContain(line);
  });

  it('is rejected when its private and public parts belong to different keys', () => {
    const [mine, other] = [makeKeyPair('a'), makeKeyPair('a')];
    const blobOf = ({ publicKey }: { publicKey: string }) => Buffer.from(publicKey.split(' ')[1] ?? '', 'base64');
    const body = Buffer.from(mine.privateKey.split('\n').slice(1, -2).join(''), 'base64');
    const own = blobOf(mine).subarray(-32);
    for (let at = body.indexOf(own); at !== -1; at = body.indexOf(own, at + 1)) blobOf(other).copy(body, at, 19);
    const mixed = `-----BEGIN OPENSSH PRIVATE KEY-----\n${body.toString('base64')}\n-----END OPENSSH PRIVATE KEY-----\n`;
    expect(() => parsePrivateKey(mixed)).toThrow('do not match');
  });

  it.each([
    [['-t', 'ed25519']],
    [['-t', 'rsa', '-b', '2048']],
    [['-t', 'rsa', '-b', '2048', '-m', 'PEM']],
    [['-t', 'ecdsa', '-b', '256']],
    [['-t', 'ecdsa', '-b', '384', '-m', 'PEM']],
    [['-t', 'ecdsa', '-b', '521']],
  ])('is accepted as created by ssh-keygen %j', (args) => {
    const { privateKey, publicKey } = keygen(...args);
    const pair = parsePrivateKey(privateKey.replaceAll('\n', '\r\n'));
    expect(pair.publicKey).toBe(publicKey.split(' ').slice(0, 2).join(' '));
    expect(publicPartBySshKeygen(pair.privateKey)).toBe(pair.publicKey);
  });
});

describe('a generated SSH key pair', () => {
  it('is readable by ssh-keygen, with the same public key and fingerprint', () => {
    const pair = makeKeyPair('headgate cluster_1');
    expect(publicPartBySshKeygen(pair.privateKey)).toBe(pair.publicKey);
    const file = join(folder, 'line.pub');
    writeFileSync(file, pair.publicKey);
    expect(execFileSync('ssh-keygen', ['-l', '-f', file], { encoding: 'utf8' })).toContain(` ${pair.fingerprint} `);
  });

  it('is valid for any bytes, including a public key that begins with zero', () => {
    const startsWithZero = ({ publicKey }: { publicKey: string }) =>
      Buffer.from(publicKey.slice(12), 'base64')[19] === 0;
    // One in 256 does.
    let pair = makeKeyPair('x');
    while (!startsWithZero(pair)) {
      expect(parsePrivateKey(pair.privateKey)).toEqual(pair);
      pair = makeKeyPair('x');
    }
    expect(publicPartBySshKeygen(pair.privateKey)).toBe(pair.publicKey);
    expect(parsePrivateKey(pair.privateKey)).toEqual(pair);
  });
});

describe('a host key', () => {
  const good = makeKeyPair('x').publicKey;
  const blob = good.split(' ')[1] ?? '';
  it.each([
    '',
    'ssh-ed25519',
    blob,
    `${good}\nssh-ed25519 ${blob}`,
    `${good}\n`,
    ` ${good}`,
    `host.example.com ${good}`,
    `command="reboot" ${good}`,
    good.replace(' ', '  '),
    good.slice(0, -8),
    `${good} comment\u0007`,
    `${good} $(reboot)\n`,
    `ssh-rsa ${blob}`,
    `ssh-dss ${blob}`,
    `ssh-ed25519-cert-v01@openssh.com ${blob}`,
    `ssh-ed25519 ${Buffer.concat([Buffer.from(blob, 'base64'), Buffer.from('more')]).toString('base64')}`,
    `ssh-ed25519 ${blob.replace(/=*$/, '')}A=`,
  ])('is rejected as %j', (text) => {
    expect(() => parseHostKey(text)).toThrow(/^must be/);
  });

  it.each([['ed25519'], ['rsa'], ['ecdsa']])('is accepted with type %s, without its comment', (type) => {
    const { publicKey } = keygen('-t', type);
    expect(parseHostKey(publicKey)).toBe(publicKey.split(' ').slice(0, 2).join(' '));
  });
});
