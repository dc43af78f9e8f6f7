/** What stands in the place of a secret. */
export const masked = '***';

/** Shorter ones are masked as whole words alone: within others they would take too much of every log with them. */
const lengthMin = 6;
/** Of the shortest secret that can be masked at all. */
export const secretCharsMin = 4;

/** Replaces secrets in a text, in whatever form Terraform and programs print them. */
export interface Mask {
  (text: string): string;
  /** Forms of secrets. */
  readonly forms: readonly string[];
}

/**
 * @param secrets what no log may show; of one with several lines each line is a secret too, as a log has lines
 */
export function createMask(secrets: readonly string[]): Mask {
  const texts = secrets.flatMap((secret) => [secret, ...secret.split('\n')]);
  const long = texts.flatMap(formsOf).filter((form) => form.length >= lengthMin);
  const short = texts.map((text) => text.trim()).filter(({ length }) => length >= secretCharsMin && length < lengthMin);
  // The longest first: a form that is part of another one must not leave the rest of it.
  const forms = [...new Set([...long, ...short])].toSorted((a, b) => b.length - a.length);
  const pattern = patternOf(forms);
  return Object.assign((text: string) => (pattern === null ? text : text.replaceAll(pattern, masked)), { forms });
}

/** Null: there are none. */
const patternOf = (forms: readonly string[]): RegExp | null =>
  forms.length === 0 ? null : new RegExp(forms.map(searched).join('|'), 'g');

/** Masks what comes in pieces: each is shown before the next one is there. */
export interface PieceMask {
  readonly whole: Mask;
  /** @param source pieces of one source follow each other */
  readonly piece: (source: string, text: string) => string;
}

/** So much of the beginning of a secret at the end of a piece is taken for one. */
const beginningMin = 4;
/** Armour of a key is no secret, and rules of dashes stand in many logs; the lines in it are secrets themselves. */
const armour = '-----';
/** Sources that are remembered, the newest. */
const sourcesMax = 1000;

/**
 * A program's write is a piece of its own where it pauses, wherever that is in a line: a secret may begin in one piece
 * and end in the next. Of its beginning three characters at most are shown, and of the rest none.
 */
export function createPieceMask(whole: Mask): PieceMask {
  const pattern = patternOf(whole.forms);
  const byFirst = Map.groupBy(
    whole.forms.filter((form) => !form.startsWith(armour)),
    (form) => form.charAt(0),
  );
  const charsMax = whole.forms[0]?.length ?? 0;
  /** What the last piece of a source ended with, where a secret begins so. */
  const begun = new Map<string, string>();

  /** The longest end of a text that a secret begins with. */
  function beginningIn(text: string): string {
    for (let at = Math.max(0, text.length - charsMax + 1); at < text.length; at += 1) {
      const end = text.slice(at);
      if (byFirst.get(text.charAt(at))?.some((form) => form.length > end.length && form.startsWith(end)) === true)
        return end;
    }
    return '';
  }

  return {
    whole,
    piece: (source, text) => {
      if (pattern === null) return text;
      const before = begun.get(source) ?? '';
      const joined = before + text;
      const end = beginningIn(joined);
      begun.delete(source);
      if (end !== '') begun.set(source, end);
      if (begun.size > sourcesMax) begun.delete(begun.keys().next().value ?? '');
      const spans = [...joined.matchAll(pattern)].map(({ index, 0: form }): Span => [index, index + form.length]);
      const own = [...text.matchAll(pattern)].map(({ index, 0: form }): Span => {
        return [before.length + index, before.length + index + form.length];
      });
      const cut: Span[] = end.length >= beginningMin ? [[joined.length - end.length, joined.length]] : [];
      return withoutSpans(joined, [[0, before.length], ...spans, ...own, ...cut], before.length);
    },
  };
}

/** From a character to before another one. */
type Span = readonly [number, number];

/** The text behind its first `shownFrom` characters, with one mask for each stretch of spans that reaches there. */
function withoutSpans(text: string, spans: readonly Span[], shownFrom: number): string {
  let shown = '';
  let at = shownFrom;
  let maskedTo = -1;
  for (const [from, to] of spans.toSorted(([a], [b]) => a - b)) {
    if (to <= at) continue;
    if (from > at) shown += text.slice(at, from);
    if (Math.max(from, shownFrom) > maskedTo) shown += masked;
    at = to;
    maskedTo = to;
  }
  return shown + text.slice(at);
}

function searched(form: string): string {
  if (form.length >= lengthMin) return escaped(form);
  const isWord = (char: string): boolean => /\w/.test(char);
  const before = isWord(form.charAt(0)) ? String.raw`(?<!\w)` : '';
  const behind = isWord(form.charAt(form.length - 1)) ? String.raw`(?!\w)` : '';
  return `${before}${escaped(form)}${behind}`;
}

/** What no character of a regular expression means anything in. */
function escaped(text: string): string {
  return text.replaceAll(/[.*+?^${}()|[\]\\/-]/g, String.raw`\$&`);
}

function formsOf(secret: string): string[] {
  const plain = secret.trim();
  const json = JSON.stringify(plain).slice(1, -1);
  // As Terraform's jsonencode() and every other program in Go write it.
  const escapedJson = json.replaceAll(/[<>&]/g, (sign) => `\\u${sign.charCodeAt(0).toString(16).padStart(4, '0')}`);
  const bytes = Buffer.from(plain, 'utf8');
  const hex = bytes.toString('hex');
  return [
    plain,
    // Of a text inside a text, as Terraform's own lines have it.
    ...[json, escapedJson].flatMap((text) => [text, JSON.stringify(text).slice(1, -1)]),
    encodeURIComponent(plain),
    new URLSearchParams([['', plain]]).toString().slice(1),
    ...base64Forms(bytes),
    hex,
    hex.toUpperCase(),
  ];
}

/** Characters of base64 that programs put into a line: RFC 2045, RFC 7468. */
const lineChars = [76, 64] as const;

/**
 * What base64 makes of a secret wherever it stands in a text, such as behind the user's name of basic authentication:
 * characters that its neighbours have a part in are left out. And pieces of lines that it is broken into.
 */
function base64Forms(bytes: Buffer): string[] {
  const shifted = [0, 1, 2].map((before) => {
    const text = Buffer.concat([Buffer.alloc(before), bytes]).toString('base64');
    const whole = Math.floor(((before + bytes.length) * 8) / 6);
    return text.slice(Math.ceil((before * 8) / 6), whole);
  });
  const plain = bytes.toString('base64').replace(/=+$/, '');
  const lines = lineChars.flatMap((width) =>
    plain.length > width ? (plain.match(new RegExp(`.{1,${width}}`, 'g')) ?? []) : [],
  );
  return [plain, ...shifted, ...lines].flatMap((text) => [text, text.replaceAll('+', '-').replaceAll('/', '_')]);
}
