/** Rules for icons: an emoji, or an image that `icon-images.ts` serves to viewers of the stack. */

const urlCharsMax = 2048;
const dataBytesMax = 32 * 1024;
const emojiCodePointsMax = 16;
const dataUrl = /^data:image\/(png|webp);base64,([A-Za-z0-9+/]+={0,2})$/;

export const iconRule =
  'must be one emoji, the https URL of an image, or the data: URL of a PNG or WebP image of at most 32 KiB';

/** Returns the image in a `data:` URL; null for other text. */
export function imageOfDataUrl(text: string): Buffer | null {
  const data = dataUrl.exec(text);
  return data === null ? null : Buffer.from(data[2] ?? '', 'base64');
}

let emoji: RegExp | null = null;

/** Compiles the pattern at the first call: V8 expands it to every emoji, which takes 30 ms. */
function isEmoji(text: string): boolean {
  emoji ??= /^(?:\p{RGI_Emoji}|\p{Extended_Pictographic}\uFE0F?)$/v;
  return emoji.test(text);
}

export function isIcon(text: string): boolean {
  if (isEmoji(text)) return Array.from(text).length <= emojiCodePointsMax;
  const data = dataUrl.exec(text);
  if (data !== null) return Buffer.byteLength(data[2] ?? '', 'base64') <= dataBytesMax;
  if (text.length > urlCharsMax || !text.startsWith('https://') || /[\s\p{Cc}"'<>\\]/u.test(text)) return false;
  const url = URL.parse(text);
  return url !== null && url.hostname !== '' && url.username === '' && url.password === '';
}
