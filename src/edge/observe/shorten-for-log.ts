const charsMax = 128;
/** Characters of a part that may be shown. The last 32 letters and digits of a key created here are its secret. */
const charactersMax = 20;
/** Shortest key that an operator may choose, counting all characters. */
const chosenKeyChars = 32;
const nameCharsMax = 48;
/** Separators between the names and indexes of a field path. */
const separators = /[.[\]]/;

/**
 * Shortens a name or path from a client for the log. Characters that are not plain ASCII are escaped as in URLs. People
 * paste keys in the wrong place, with any prefix and in any wrapping, so only short parts and parts of plain words,
 * such as `include_stop_str_in_output`, are shown. A segment with any other part is replaced by `***`.
 */
export function shortenForLog(text: string): string;
export function shortenForLog(text: string | null): string | null;
export function shortenForLog(text: string | null): string | null {
  if (text === null) return null;
  const shown = text.toWellFormed().split('/').map(shownSegment).join('/');
  return shown.length > charsMax ? `${shown.slice(0, charsMax)}…` : shown;
}

/** Formats a segment. Decoding may shorten a key whose characters look encoded, so the length as sent counts too. */
function shownSegment(sent: string): string {
  return decoded(sent)
    .split('/')
    .map((segment) =>
      isHarmless(segment, Math.max(sent.length, segment.length))
        ? segment.replaceAll(unsafe, encodeURIComponent)
        : '***',
    )
    .join('/');
}

/**
 * True if the whole segment may be shown. It is shown completely or not at all: text beside a part of a key may be the
 * rest of the key.
 */
function isHarmless(segment: string, chars: number): boolean {
  const isShort = chars < chosenKeyChars;
  return segment.split(separators).every((part) => {
    if (part.length <= nameCharsMax && namePattern.test(part)) return true;
    // Normalizes look-alike letters of other scripts.
    return isShort && part.normalize('NFKC').replaceAll(/[^\p{L}\p{N}_-]/gu, '').length <= charactersMax;
  });
}

/** Field names and indexes; also the empty text between a bracket and a dot. */
const namePattern = /^(?:\d{1,4}|[a-z]{1,14}(?:_[a-z]{1,14})*|)$/;

/** Removes percent-encoding, however often it was applied. Each round shortens the text. */
function decoded(text: string): string {
  const once = text.replaceAll(/(?:%[0-9A-Fa-f]{2})+/g, (encoded) =>
    Buffer.from(encoded.replaceAll('%', ''), 'hex').toString('utf8'),
  );
  return once === text ? text : decoded(once);
}

/** Matches everything except printable ASCII without quotes and backslash. */
const unsafe = /[^\x21\x23-\x26\x28-\x5b\x5d-\x7e]/gu;
