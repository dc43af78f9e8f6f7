const charsMax = 128;
/** The last 32 letters and digits of a key that was made here are what nobody can guess. */
const charactersMax = 20;
/** A key that an operator chose is no shorter in all, whatever characters it has. */
const chosenKeyChars = 32;
const wordsCharsMax = 48;
/** Of a field's path all that stands between its names and indexes. */
const separators = /[.[\]]/;

/**
 * A name or a path that a client made up, as it may stand in a log: cut, with what is no plain ASCII escaped as in a
 * URL. People paste keys in the wrong place, of whatever prefix and in whatever wrapping: of each part only a short
 * one, or one of plain words such as `include_stop_str_in_output`, is shown, and of all others `***`.
 */
export function clientsWord(text: string): string;
export function clientsWord(text: string | null): string | null;
export function clientsWord(text: string | null): string | null {
  if (text === null) return null;
  const shown = text.toWellFormed().split('/').map(shownSegment).join('/');
  return shown.length > charsMax ? `${shown.slice(0, charsMax)}…` : shown;
}

/** What looks encoded may be a key's own characters, which decoding makes fewer: those that were sent count, too. */
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

/** A segment is shown whole or not at all: what stands beside a part of a key may be the rest of it. */
function isHarmless(segment: string, chars: number): boolean {
  const isShort = chars < chosenKeyChars;
  return segment.split(separators).every((part) => {
    if (part.length <= wordsCharsMax && words.test(part)) return true;
    // Letters of other scripts that look like ours come to the same.
    return isShort && part.normalize('NFKC').replaceAll(/[^\p{L}\p{N}_-]/gu, '').length <= charactersMax;
  });
}

/** Names of fields, and indexes; nothing for what stands between a bracket and a dot. */
const words = /^(?:\d{1,4}|[a-z]{1,14}(?:_[a-z]{1,14})*|)$/;

/** Without percent-encoding, however often it was applied: each round is shorter than the one before. */
function decoded(text: string): string {
  const once = text.replaceAll(/(?:%[0-9A-Fa-f]{2})+/g, (encoded) =>
    Buffer.from(encoded.replaceAll('%', ''), 'hex').toString('utf8'),
  );
  return once === text ? text : decoded(once);
}

/** All but printable ASCII without quotes and backslash. */
const unsafe = /[^\x21\x23-\x26\x28-\x5b\x5d-\x7e]/gu;
