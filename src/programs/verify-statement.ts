import { createPublicKey, type JsonWebKey, type KeyObject, verify } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { type CommandContext, exitCodes, textFlag, UsageError } from '#edge/cli/cli.ts';

/** Runs `headgate verify-statement`: checks the signature of a statement file, without a gateway. */
export function runVerifyStatement(context: CommandContext): Promise<number> {
  const [signature, keyFile] = [textFlag(context, 'signature'), textFlag(context, 'key')];
  if (signature === null || keyFile === null) throw new UsageError('--signature and --key are required');
  const file = context.words[0] ?? '';
  const isSigned = isSignedBy(readFile(file), signature, readKey(keyFile));
  const verdict = isSigned ? `${file}: the signature is valid\n` : `${file}: the signature is NOT valid for this key\n`;
  context.out(context.json ? `${JSON.stringify({ object: 'verdict', file, signed: isSigned })}\n` : verdict);
  return Promise.resolve(isSigned ? exitCodes.ok : exitCodes.failed);
}

function readFile(path: string): Buffer {
  try {
    return readFileSync(path);
  } catch (error) {
    throw new UsageError(`${path} cannot be read (${error instanceof Error ? error.message : String(error)})`);
  }
}

function readKey(path: string): KeyObject {
  const text = readFile(path).toString();
  try {
    const key = text.trimStart().startsWith('{')
      ? createPublicKey({ key: JSON.parse(text) as JsonWebKey, format: 'jwk' })
      : createPublicKey(text);
    if (key.asymmetricKeyType === 'ed25519') return key;
  } catch {
    // Not a public key: reported below.
  }
  throw new UsageError(`${path} contains no Ed25519 public key, as JWK or PEM`);
}

/** Verifies a compact JWS without its payload (RFC 7515, appendix F); only EdDSA is accepted. */
function isSignedBy(payload: Buffer, jws: string, key: KeyObject): boolean {
  const [, header = '', signature = ''] = /^([\w-]+)\.\.([\w-]+)$/.exec(jws.trim()) ?? [];
  if (header === '') throw new UsageError('--signature must be the value of x-headgate-signature: "header..signature"');
  let algorithm: unknown;
  try {
    algorithm = (JSON.parse(Buffer.from(header, 'base64url').toString()) as { alg?: unknown } | null)?.alg;
  } catch {
    return false;
  }
  const signed = Buffer.from(`${header}.${payload.toString('base64url')}`);
  return algorithm === 'EdDSA' && verify(null, signed, key, Buffer.from(signature, 'base64url'));
}
