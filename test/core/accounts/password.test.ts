import { describe, expect, it } from 'vitest';
import { decoyHash, hashPassword, verifyPassword } from '#core/accounts/accounts.ts';

describe('password hashing', () => {
  it('hashes 17 passwords of one asker at once, rejects more with overloaded, and still serves others', async () => {
    const many = Array.from({ length: 40 }, () => hashPassword('correct horse', 'many'));
    const settled = Promise.allSettled(many);
    const other = await hashPassword('battery staple', 'other');
    const left = Symbol('still waiting');
    expect(await Promise.race([settled, Promise.resolve(left)])).toBe(left);
    expect(await verifyPassword('battery staple', other, 'other')).toBe(true);
    const results = await settled;
    const refusals = results.flatMap((one) => (one.status === 'rejected' ? [one.reason.code] : []));
    expect(refusals).toEqual(Array.from({ length: 40 - 17 }, () => 'overloaded'));
  });

  it('accepts the exact password only, and rejects an empty hash', async () => {
    const kept = await hashPassword(' pässword ');
    expect(kept).toMatch(/^\$argon2id\$v=19\$m=19456,t=2,p=1\$[A-Za-z0-9+/]+\$[A-Za-z0-9+/]+$/);
    expect(await verifyPassword(' pässword ', kept)).toBe(true);
    expect(await verifyPassword('pässword', kept)).toBe(false);
    expect(await verifyPassword('', '')).toBe(false);
  });
});

it('uses a decoy hash for unknown users that costs as much as a real one', async () => {
  const costs = (kept: string): string => kept.split('$').slice(0, 4).join('$');
  const kept = await hashPassword('correct horse');
  expect(costs(decoyHash)).toBe(costs(kept));
  expect(decoyHash).toHaveLength(kept.length);
  expect(await verifyPassword('', decoyHash)).toBe(false);
});
