import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { uuidv7 } from '#base/id.ts';
import { makeSecret } from '#core/keys/secret.ts';
import { shortenForLog } from '#edge/observe/shorten-for-log.ts';

const made = (prefix: string): string => makeSecret(prefix, uuidv7()).secret;

/** Every character that is not written as itself in a URL, and those that are. */
const encodings: readonly ((text: string) => string)[] = [
  (text) => text,
  encodeURIComponent,
  (text) => [...Buffer.from(text)].map((byte) => `%${byte.toString(16).padStart(2, '0')}`).join(''),
  (text) => text.replaceAll('-', '%2D'),
  (text) => Buffer.from(text).toString('base64url'),
  (text) => Buffer.from(text).toString('hex'),
  (text) =>
    text
      .split('')
      .map((one) => String.fromCharCode((one.codePointAt(0) ?? 0) + 0xfee0))
      .join(''),
  (text) =>
    text
      .split('')
      .map((one) => `\\x${one.codePointAt(0)?.toString(16)}`)
      .join(''),
  (text) =>
    text
      .split('')
      .map((one) => `%u00${one.codePointAt(0)?.toString(16)}`)
      .join(''),
  (text) => text.split('').join(','),
];

describe('client text in the log', () => {
  it('contains no key, for any prefix and any text around it', () => {
    const prefix = fc.stringMatching(/^[A-Za-z0-9][A-Za-z0-9_-]{0,23}$/).map(made);
    const around = fc.oneof(fc.string({ maxLength: 200 }), fc.string({ unit: 'binary', maxLength: 20 }));
    const rounds = fc.array(fc.constantFrom(...encodings.slice(0, 4)), { maxLength: 4 });
    const surroundings = fc.tuple(around, around);
    fc.assert(
      fc.property(
        prefix,
        surroundings,
        fc.tuple(fc.constantFrom(...encodings), rounds),
        (key, [before, behind], [encode, more]) => {
          const text = more.reduce(
            (last, next) => next(last.toWellFormed()),
            `${before}${encode(key)}${behind}`.toWellFormed(),
          );
          const shown = shortenForLog(text);
          // Not even half of what is random in it, in any case and encoding of it.
          const half = key.slice(-32, -16);
          for (const encoded of encodings.map((one) => one(half).toLowerCase())) {
            expect(shown.toLowerCase()).not.toContain(encoded);
          }
          expect(shown).toMatch(/^[\x21-\x7e]*…?$/);
          expect(shown.length).toBeLessThanOrEqual(129);
        },
      ),
      { numRuns: 500 },
    );
  });

  it('contains no key that an operator chose', () => {
    const chosen = fc.stringMatching(/^[\x21-\x2e\x30-\x7e]{32,100}$/).filter((key) => /[^a-z_.[\]\d]/.test(key));
    const rounds = fc.array(fc.constantFrom(...encodings.slice(0, 3)), { maxLength: 3 });
    fc.assert(
      fc.property(chosen, rounds, (key, more) => {
        const text = more.reduce((last, next) => next(last), key);
        for (const shown of [shortenForLog(text), shortenForLog(`/v1/${text}/x`)]) expect(shown).toContain('***');
      }),
    );
  });

  it.each(['sk-hg-', 'acme-', 'a'])('contains no key that begins with %s', (prefix) => {
    const key = made(prefix);
    const paths = [`/v1/x%2F${key}`, `/v1/keys,${key}`, `/v1/x@${key}`, `/v1/(${key})`, `x,${key}`, `my,${key}`];
    for (const text of [
      ...paths,
      `messages[0].${key}`,
      `/v1/%252525${key}`,
      `${key.slice(0, 20)}%2E${key.slice(20)}`,
    ]) {
      expect(shortenForLog(text)).toContain('***');
      expect(shortenForLog(text)).not.toContain(key.slice(-12));
    }
  });

  it.each([
    '/v1/chat/completion',
    '/v1/audio/transcriptions',
    'messages[0].content[1].image_url',
    'stream_options.continuous_usage_stats',
    'spaces_between_special_tokens',
    'tools[0].function.parameters',
    'x%0Ay%22',
    '/caf%C3%A9/100%25'.replace('%25', '%'),
  ])('is unchanged when it is short or made of words: %s', (text) => {
    expect(shortenForLog(text)).toBe(text);
  });

  it('is cut at 128 characters', () => {
    expect(shortenForLog('/long'.repeat(90))).toBe(`${'/long'.repeat(26).slice(0, 128)}…`);
    expect(shortenForLog(null)).toBeNull();
  });
});
