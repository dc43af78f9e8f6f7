import { createHash } from 'node:crypto';

/** Maximum characters of a DNS label (RFC 1035, section 2.3.4). */
const labelMax = 63;
const digitsLength = 6;

/**
 * Returns `<stack>--<cluster>`: a cluster's name contains no "--", so different pairs of names give different labels.
 */
export function wantedLabel(stackName: string, clusterName: string): string {
  const label = `${stackName}--${clusterName}`;
  // Names with this prefix are interpreted as encoded Unicode (RFC 5890, section 2.3.1).
  return label.startsWith('xn--') ? `stack-${label}` : label;
}

/** Yields the wanted label, then alternatives if the label is too long or taken; always in the same order. */
export function* labelsFor(wanted: string, installationId: string): Generator<string> {
  yield wanted.length <= labelMax ? wanted : cut(wanted, wanted);
  for (let attempt = 1; ; attempt += 1) yield cut(wanted, `${wanted} ${installationId} ${attempt}`);
}

function cut(wanted: string, seed: string): string {
  const digits = createHash('sha256').update(seed).digest('hex').slice(0, digitsLength);
  const kept = wanted.slice(0, labelMax - digitsLength - 1).replace(/-+$/, '');
  return `${kept}-${digits}`;
}
