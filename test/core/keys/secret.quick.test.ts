import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { uuidv7 } from '#base/id.ts';
import { hashSecret, holdsSecret, isWellFormedSecret, makeSecret } from '#core/keys/secret.ts';

const base62 = Array.from('0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz');

describe('a key secret', () => {
  it('with one character mistyped, left out, doubled or swapped is rejected without a lookup', () => {
    const { secret } = makeSecret('sk-hg-', uuidv7());
    const position = fc.nat({ max: secret.length - 1 });
    fc.assert(
      fc.property(position, fc.constantFrom(...base62), (at, character) => {
        const mistyped = secret.slice(0, at) + character + secret.slice(at + 1);
        return mistyped === secret || !isWellFormedSecret(mistyped);
      }),
    );
    for (let at = 0; at < secret.length; at += 1) {
      expect(isWellFormedSecret(secret.slice(0, at) + secret.slice(at + 1))).toBe(false);
      const doubled = secret.slice(0, at) + secret.slice(at, at + 1) + secret.slice(at);
      expect(isWellFormedSecret(doubled)).toBe(false);
      const swapped =
        secret.slice(0, at) +
        secret
          .slice(at, at + 2)
          .split('')
          .reverse()
          .join('') +
        secret.slice(at + 2);
      expect(swapped === secret || !isWellFormedSecret(swapped)).toBe(true);
    }
  });

  it('is rejected if it is any other text', () => {
    expect(isWellFormedSecret('')).toBe(false);
    fc.assert(fc.property(fc.string({ unit: 'binary', maxLength: 80 }), (text) => !isWellFormedSecret(text)));
  });

  it('has a prefix, the end of its project id and more than 128 random bits beyond the shown characters', () => {
    const projectId = uuidv7();
    const { secret, prefix, last4 } = makeSecret('sk-hg-', projectId);
    expect(secret).toMatch(/^sk-hg-[0-9a-f]{12}-[0-9A-Za-z]{32}$/);
    expect(prefix).toBe(`sk-hg-${projectId.slice(-12)}`);
    expect(last4).toBe(secret.slice(-4));
    expect(26 * Math.log2(62) - 4 * Math.log2(62)).toBeGreaterThan(128);
  });

  it('is well formed under any prefix, and unique', () => {
    const seen = new Set<string>();
    for (const keyPrefix of ['sk-hg-', 'a', 'Acme_', 'x'.repeat(24)]) {
      for (let index = 0; index < 500; index += 1) {
        const { secret } = makeSecret(keyPrefix, uuidv7());
        expect(isWellFormedSecret(secret)).toBe(true);
        seen.add(secret);
      }
    }
    expect(seen.size).toBe(2000);
  });

  it('is found in a text under any prefix and between any characters; a mistyped one is not', () => {
    expect(holdsSecret('')).toBe(false);
    const around = fc.string({ unit: 'grapheme-ascii', maxLength: 100 });
    fc.assert(
      fc.property(around, around, fc.constantFrom('sk-hg-', 'a', 'Acme_', 'x'.repeat(24)), (before, after, prefix) => {
        const { secret } = makeSecret(prefix, uuidv7());
        const last = secret.endsWith('0') ? '1' : '0';
        const mistyped = secret.slice(0, -1) + last;
        return holdsSecret(`${before}${secret}${after}`) && !holdsSecret(`${before} ${mistyped}${after}`);
      }),
    );
  });

  it('is searched in time linear in the text, with any filler', () => {
    const almost = `${'a'.repeat(12)}-${'a'.repeat(32)}`;
    // Measures the processor's time, which other programs do not change; ten at once, since one look is soon over.
    const leastCpu = (work: () => unknown): number => {
      const times = Array.from({ length: 8 }, () => {
        const began = process.cpuUsage();
        for (let time = 0; time < 10; time += 1) work();
        const { user, system } = process.cpuUsage(began);
        return user + system;
      });
      return Math.min(...times);
    };
    for (const filler of ['a', '-', '0-', almost, `${almost}-`]) {
      const [short = '', long = ''] = [30_000, 300_000].map((length) =>
        filler.repeat(Math.ceil(length / filler.length)),
      );
      expect(holdsSecret(long)).toBe(false);
      // Ten times the text takes ten times as long; a pattern that looks back from every character a hundred times.
      expect(leastCpu(() => holdsSecret(long)) / leastCpu(() => holdsSecret(short))).toBeLessThan(40);
    }
  });

  it('uses all characters about equally often', () => {
    const counts = new Map<string, number>();
    for (let index = 0; index < 4000; index += 1) {
      const { secret, prefix } = makeSecret('', uuidv7());
      for (const character of secret.slice(prefix.length + 1, -6)) {
        counts.set(character, (counts.get(character) ?? 0) + 1);
      }
    }
    const expected = (4000 * 26) / 62;
    const chiSquared = base62.reduce((sum, character) => {
      return sum + ((counts.get(character) ?? 0) - expected) ** 2 / expected;
    }, 0);
    // 61 degrees of freedom: beyond 160 with a chance of 1 in 10^10.
    expect(chiSquared).toBeLessThan(160);
  });

  it('is hashed with SHA-256', () => {
    expect(hashSecret('abc').toString('hex')).toBe('ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad');
  });
});
