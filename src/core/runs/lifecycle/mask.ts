/** Replaces a secret in logs and outputs. */
export const masked = '***';

/** Shorter secrets are masked only as whole words: masked inside other words, they would make logs unreadable. */
const lengthMin = 6;
/** Length of the shortest secret that can be masked. */
export const secretCharsMin = 4;

/** Replaces secrets in a text, in all forms in which Terraform and programs print them. */
export interface Mask {
  (text: string): string;
  /** The forms of the secrets that are searched for. */
  readonly forms: readonly string[];
}

/**
 * @param secrets values that no log may show; each line of a multi-line secret is a secret too, because logs have lines
 */
export function createMask(secrets: readonly string[]): Mask {
  const texts = secrets.flatMap((secret) => [secret, ...secret.split('\n')]);
  const long = texts.flatMap(formsOf).filter((form) => form.length >= lengthMin);
  const short = texts.map((text) => text.trim()).filter(({ length }) => length >= secretCharsMin && length < lengthMin);
  // Longest first: a form that is part of a longer one must not leave the rest of the longer one.
  const forms = [...new Set([...long, ...short])].toSorted((a, b) => b.length - a.length);
  const pattern = patternOf(forms);
  return Object.assign((text: string) => (pattern === null ? text : text.replaceAll(pattern, masked)), { forms });
}

/** Returns null if there are no forms. */
const patternOf = (forms: readonly string[]): RegExp | null =>
  forms.length === 0 ? null : new RegExp(forms.map(searched).join('|'), 'g');

/** Masks text that arrives in pieces, where each piece is shown before the next one arrives. */
export interface PieceMask {
  readonly whole: Mask;
  /** @param source pieces of one source belong together, in order */
  readonly piece: (source: string, text: string) => string;
}

/** Characters at the end of a piece that are masked if a secret begins with them. */
const beginningMin = 4;
/**
 * The armor of a key is not secret, and many logs have lines of dashes; the lines inside the armor are secrets
 * themselves.
 */
const armour = '-----';
/** Maximum number of sources that are remembered; the newest stay. */
const sourcesMax = 1000;

/**
 * Creates a mask for pieces. A program's write becomes a piece wherever the program pauses, also inside a line: a
 * secret may begin in one piece and end in the next. At most three characters of its beginning are shown, and nothing
 * of the rest.
 */
export function createPieceMask(whole: Mask): PieceMask {
  const pattern = patternOf(whole.forms);
  const byFirst = Map.groupBy(
    whole.forms.filter((form) => !form.startsWith(armour)),
    (form) => form.charAt(0),
  );
  const charsMax = whole.forms[0]?.length ?? 0;
  /** For each source, the end of its last piece if a secret begins with it. */
  const begun = new Map<string, string>();

  /** Returns the longest end of a text that a secret begins with. */
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

/** Start (inclusive) and end (exclusive) of a stretch of text. */
type Span = readonly [number, number];

/**
 * Returns the text after its first `shownFrom` characters, with one mask for each stretch of spans that reaches there.
 */
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

/** Escapes all characters that have a meaning in a regular expression. */
function escaped(text: string): string {
  return text.replaceAll(/[.*+?^${}()|[\]\\/-]/g, String.raw`\$&`);
}

function formsOf(secret: string): string[] {
  const plain = secret.trim();
  const json = JSON.stringify(plain).slice(1, -1);
  // As Terraform's jsonencode() and Go's encoding/json write it.
  const escapedJson = json.replaceAll(/[<>&]/g, (sign) => `\\u${sign.charCodeAt(0).toString(16).padStart(4, '0')}`);
  const bytes = Buffer.from(plain, 'utf8');
  const hex = bytes.toString('hex');
  return [
    plain,
    // JSON text inside a JSON text, as in Terraform's own lines.
    ...[json, escapedJson].flatMap((text) => [text, JSON.stringify(text).slice(1, -1)]),
    encodeURIComponent(plain),
    new URLSearchParams([['', plain]]).toString().slice(1),
    ...base64Forms(bytes),
    hex,
    hex.toUpperCase(),
  ];
}

/** Lengths of the lines into which programs break base64: RFC 2045, RFC 7468. */
const lineChars = [76, 64] as const;

/**
 * Returns base64 forms of a secret at any position in a text, such as after the user name of basic authentication.
 * Characters that neighbors of the secret influence are left out. Includes the lines into which base64 is broken.
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
