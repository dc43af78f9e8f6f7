import { createHash, createPublicKey, generateKeyPairSync, randomBytes } from 'node:crypto';
import type { ParsedKey } from 'ssh2';
import { loadSsh2 } from '#base/ssh2.ts';

/** A key pair for logging in to nodes. */
export interface SshKeyPair {
  /** In the format that OpenSSH and Terraform read, without a passphrase. */
  readonly privateKey: string;
  /** `ssh-ed25519 AAAA…`, without a comment. */
  readonly publicKey: string;
  /** As printed by `ssh-keygen -l`: `SHA256:…`. */
  readonly fingerprint: string;
}

/** A problem of a key, as a sentence that continues after the field's name; it never quotes the key. */
export class SshKeyError extends Error {
  constructor(message: string) {
    super(message);
    this.name = 'SshKeyError';
  }
}

const ed25519 = 'ssh-ed25519';
const rsaBitsMin = 2048;
/** Without DSA, which OpenSSH has dropped, and without certificates, which name an authority and not a host. */
const keyTypes: ReadonlySet<string> = new Set([
  ed25519,
  'ecdsa-sha2-nistp256',
  'ecdsa-sha2-nistp384',
  'ecdsa-sha2-nistp521',
  'ssh-rsa',
]);
const typesText = [...keyTypes].join(', ');

/** Encodes a string of RFC 4251 §5: length and bytes. */
function sshString(data: Buffer | string): Buffer {
  const bytes = Buffer.from(data);
  const length = Buffer.alloc(4);
  length.writeUInt32BE(bytes.length);
  return Buffer.concat([length, bytes]);
}

/**
 * Generates an Ed25519 pair. Does not use ssh2, which drops leading zero bytes of a public key.
 * @param comment printable ASCII; stored only inside the private key
 */
export function makeKeyPair(comment: string): SshKeyPair {
  const jwk = generateKeyPairSync('ed25519').privateKey.export({ format: 'jwk' });
  const [seed, point] = [Buffer.from(jwk.d ?? '', 'base64url'), Buffer.from(jwk.x ?? '', 'base64url')];
  const publicBlob = Buffer.concat([sshString(ed25519), sshString(point)]);
  return {
    privateKey: privateKeyFile({ publicBlob, point, secret: Buffer.concat([seed, point]), comment }),
    publicKey: publicLine(ed25519, publicBlob),
    fingerprint: fingerprintOf(publicBlob),
  };
}

interface KeyParts {
  readonly publicBlob: Buffer;
  readonly point: Buffer;
  readonly secret: Buffer;
  readonly comment: string;
}

/** Formats a private key as OpenSSH's PROTOCOL.key describes, without encryption. */
function privateKeyFile({ publicBlob, point, secret, comment }: KeyParts): string {
  const check = randomBytes(4);
  const plain = Buffer.concat([
    check,
    check,
    sshString(ed25519),
    sshString(point),
    sshString(secret),
    sshString(comment),
  ]);
  // Padding to 8, the block size without a cipher, with 1, 2, 3…
  const padding = Buffer.from(Array.from({ length: (8 - (plain.length % 8)) % 8 }, (_, index) => index + 1));
  const one = Buffer.from([0, 0, 0, 1]);
  const body = Buffer.concat([
    Buffer.from('openssh-key-v1\0'),
    sshString('none'),
    sshString('none'),
    sshString(''),
    one,
    sshString(publicBlob),
    sshString(Buffer.concat([plain, padding])),
  ]);
  const lines = body.toString('base64').match(/.{1,70}/g) ?? [];
  return ['-----BEGIN OPENSSH PRIVATE KEY-----', ...lines, '-----END OPENSSH PRIVATE KEY-----', ''].join('\n');
}

const publicLine = (type: string, blob: Buffer): string => `${type} ${blob.toString('base64')}`;

const fingerprintOf = (blob: Buffer): string =>
  `SHA256:${createHash('sha256').update(blob).digest('base64').replace(/=+$/, '')}`;

/** Formats that both OpenSSH and Terraform read. */
const pemHead = /^-----BEGIN (?:OPENSSH|RSA|EC) PRIVATE KEY-----\r?\n/;
const privateKeyCharsMax = 16_384;

/** Parses a private key from a user. @throws SshKeyError */
export function parsePrivateKey(text: string): SshKeyPair {
  const trimmed = text.trim();
  if (trimmed.length > privateKeyCharsMax) throw new SshKeyError('is longer than a private key can be');
  if (!pemHead.test(trimmed)) throw new SshKeyError('must be a private key in the format of ssh-keygen');
  const key = parsed(trimmed, 'is not a readable private key; it must not have a passphrase');
  if (!key.isPrivateKey()) throw new SshKeyError('must be a private key in the format of ssh-keygen');
  requireType(key);
  const probe = randomBytes(32);
  const signature = key.sign(probe);
  const isWhole = !(signature instanceof Error) && key.verify(probe, signature) === true;
  if (!isWhole) throw new SshKeyError('is not a key pair: the private and public parts do not match');
  const blob = key.getPublicSSH();
  return {
    privateKey: `${trimmed.replaceAll('\r\n', '\n')}\n`,
    publicKey: publicLine(key.type, blob),
    fingerprint: fingerprintOf(blob),
  };
}

/** Parses the public key of a host, `type base64`, and drops its comment. @throws SshKeyError */
export function parseHostKey(text: string): string {
  const wanted =
    'must be an OpenSSH public key that starts with its type, then its base64, as in ssh_host_ecdsa_key.pub';
  const match = /^([a-z0-9-]{1,40}) ([A-Za-z0-9+/]{16,4096}={0,2})(?: [\x20-\x7e]{0,255})?$/.exec(text);
  const [, type = '', base64 = ''] = match ?? [];
  if (match === null) throw new SshKeyError(wanted);
  if (!keyTypes.has(type)) throw new SshKeyError(`must be of type ${typesText}`);
  const blob = Buffer.from(base64, 'base64');
  const isCanonical = blob.toString('base64') === base64 && blob.indexOf(sshString(type)) === 0;
  if (!isCanonical) throw new SshKeyError(wanted);
  const key = parsed(publicLine(type, blob), wanted);
  requireType(key);
  if (key.isPrivateKey() || key.type !== type || !key.getPublicSSH().equals(blob)) throw new SshKeyError(wanted);
  return publicLine(type, blob);
}

function parsed(text: string, otherwise: string): ParsedKey {
  let key: ParsedKey | ParsedKey[] | Error;
  try {
    key = loadSsh2().utils.parseKey(text);
  } catch {
    throw new SshKeyError(otherwise);
  }
  // A file with several keys has no single public part.
  const one = Array.isArray(key) ? (key.length === 1 ? key[0] : undefined) : key;
  if (one === undefined || one instanceof Error) throw new SshKeyError(otherwise);
  return one;
}

function requireType(key: ParsedKey): void {
  if (!keyTypes.has(key.type)) throw new SshKeyError(`must be of type ${typesText}`);
  let bits: number | undefined;
  try {
    bits = createPublicKey(key.getPublicPEM()).asymmetricKeyDetails?.modulusLength;
  } catch {
    // The point is not on its curve, or the modulus is invalid.
    throw new SshKeyError('is not a usable key');
  }
  if (bits !== undefined && bits < rsaBitsMin) throw new SshKeyError(`must have at least ${rsaBitsMin} bits`);
}
