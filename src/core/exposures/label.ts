import { createHash } from 'node:crypto';

/** A DNS label holds so many characters (RFC 1035, section 2.3.4). */
const labelMax = 63;
const digitsLength = 6;

/** `<stack>--<cluster>`: a cluster's name has no "--", so no two pairs of names make the same. */
export function wantedLabel(stackName: string, clusterName: string): string {
  const label = `${stackName}--${clusterName}`;
  // Names that begin so are read as encoded Unicode (RFC 5890, section 2.3.1).
  return label.startsWith('xn--') ? `stack-${label}` : label;
}

/** The wanted label, then others in its place where it is too long or somebody else has it; always the same ones. */
export function* labelsFor(wanted: string, installationId: string): Generator<string> {
  yield wanted.length <= labelMax ? wanted : cut(wanted, wanted);
  for (let attempt = 1; ; attempt += 1) yield cut(wanted, `${wanted} ${installationId} ${attempt}`);
}

function cut(wanted: string, seed: string): string {
  const digits = createHash('sha256').update(seed).digest('hex').slice(0, digitsLength);
  const kept = wanted.slice(0, labelMax - digitsLength - 1).replace(/-+$/, '');
  return `${kept}-${digits}`;
}
