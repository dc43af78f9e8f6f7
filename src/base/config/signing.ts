import { createHash, createPrivateKey, createPublicKey, type KeyObject, sign } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { ConfigError } from '#base/config-error.ts';

/** Signs bytes as they are sent, with the operator's key. */
export interface Signer {
  /** RFC 7638 thumbprint of the public key. */
  readonly keyId: string;
  /** RFC 8037: `{kty: "OKP", crv: "Ed25519", x, kid, alg, use}` */
  readonly publicKey: Readonly<Record<string, string>>;
  /** A compact JWS whose payload is left out (RFC 7515, appendix F): `header..signature`. */
  signDetached(payload: Buffer): string;
}

const encoded = (text: string): string => Buffer.from(text).toString('base64url');

/**
 * @param variable that names the file; for the error
 * @throws ConfigError when it cannot be read, or is no Ed25519 private key in PEM without a passphrase
 */
export function readSigner(path: string, variable: string): Signer {
  const key = readPrivateKey(path, variable);
  const { x = '' } = createPublicKey(key).export({ format: 'jwk' });
  // The members that are required, in the order of their names.
  const keyId = createHash('sha256').update(`{"crv":"Ed25519","kty":"OKP","x":"${x}"}`).digest('base64url');
  const header = encoded(JSON.stringify({ alg: 'EdDSA', kid: keyId }));
  return {
    keyId,
    publicKey: { kty: 'OKP', crv: 'Ed25519', x, kid: keyId, alg: 'EdDSA', use: 'sig' },
    signDetached(payload) {
      const signature = sign(null, Buffer.from(`${header}.${payload.toString('base64url')}`), key);
      return `${header}..${signature.toString('base64url')}`;
    },
  };
}

function readPrivateKey(path: string, variable: string): KeyObject {
  let text: string;
  try {
    text = readFileSync(path, 'utf8');
  } catch (error) {
    throw new ConfigError(`${variable}: ${path} cannot be read (${error instanceof Error ? error.message : ''}).`);
  }
  const hint = 'create one with: openssl genpkey -algorithm ed25519';
  let key: KeyObject;
  try {
    key = createPrivateKey(text);
  } catch {
    // OpenSSL's message may quote the file.
    throw new ConfigError(`${variable}: ${path} must contain a PEM private key without a passphrase; ${hint}.`);
  }
  if (key.asymmetricKeyType === 'ed25519') return key;
  throw new ConfigError(`${variable}: the key in ${path} has type ${key.asymmetricKeyType}, not ed25519; ${hint}.`);
}
