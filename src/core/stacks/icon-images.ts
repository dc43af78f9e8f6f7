import type { Clock } from '#base/clock.ts';
import { AppError } from '#base/errors.ts';
import { TooManyWaitError } from '#base/queues/queues.ts';
import { PackageRefusedError } from '#core/stacks/package/package.ts';
import { download, type Downloads, type Wanted } from './download.ts';
import { imageOfDataUrl } from './icon.ts';

/**
 * Serves images of icons from the gateway, so that a viewer's browser contacts no other host. They are downloaded like
 * packages, only from public addresses, and kept for a day.
 */

export interface IconImage {
  readonly bytes: Buffer;
  readonly type: 'image/png' | 'image/jpeg' | 'image/gif' | 'image/webp';
}

export interface IconImages {
  /** Returns an icon's image; null for an emoji, a failed download, and other types. @throws TooManyWaitError */
  read(icon: string): Promise<IconImage | null>;
}

const imageBytesMax = 512 * 1024;
const fetchMsMax = 5000;
const keptMs = 86_400_000;
/** Milliseconds until a failed download is tried again. */
const missedMs = 300_000;
/** Most bytes of all kept images together. */
const keptBytesMax = 16 * 1024 * 1024;
const keptMax = 1000;

const wantedImage: Wanted = {
  what: 'image',
  bytesMax: imageBytesMax,
  tooLarge: () => new AppError('request_too_large'),
};

/** Detects the type by the first bytes, not by the server's header. SVG may contain scripts and is not supported. */
export function imageTypeOf(bytes: Buffer): IconImage['type'] | null {
  const head = bytes.toString('latin1', 0, 12);
  if (head.startsWith('\x89PNG\r\n\x1a\n')) return 'image/png';
  if (head.startsWith('\xff\xd8\xff')) return 'image/jpeg';
  if (head.startsWith('GIF87a') || head.startsWith('GIF89a')) return 'image/gif';
  return head.startsWith('RIFF') && head.endsWith('WEBP') ? 'image/webp' : null;
}

function toImage(bytes: Buffer): IconImage | null {
  const type = imageTypeOf(bytes);
  return type === null ? null : { bytes, type };
}

interface Kept {
  readonly image: IconImage | null;
  readonly untilMs: number;
}

export function createIconImages(downloads: Downloads, clock: Clock): IconImages {
  /** Kept images by URL, the most recent at the end. */
  const kept = new Map<string, Kept>();
  const fetching = new Map<string, Promise<IconImage | null>>();
  let keptBytes = 0;

  const forget = (url: string): void => {
    keptBytes -= kept.get(url)?.image?.bytes.length ?? 0;
    kept.delete(url);
  };
  const keep = (url: string, image: IconImage | null): void => {
    forget(url);
    kept.set(url, { image, untilMs: clock.now() + (image === null ? missedMs : keptMs) });
    keptBytes += image?.bytes.length ?? 0;
    for (const oldest of kept.keys()) {
      if (keptBytes <= keptBytesMax && kept.size <= keptMax) break;
      forget(oldest);
    }
  };
  const fetch = async (url: string): Promise<IconImage | null> => {
    try {
      const image = toImage(await download(url, { ...downloads, timeoutMs: fetchMsMax }, wantedImage));
      keep(url, image);
      return image;
    } catch (error) {
      // The download did not start, so nothing is known about the image.
      if (error instanceof TooManyWaitError) throw error;
      if (!(error instanceof PackageRefusedError) && !(error instanceof AppError)) throw error;
      keep(url, null);
      return null;
    }
  };
  return {
    async read(icon) {
      const inline = imageOfDataUrl(icon);
      if (inline !== null) return toImage(inline);
      if (!icon.startsWith('https://')) return null;
      const found = kept.get(icon);
      if (found !== undefined && found.untilMs > clock.now()) return found.image;
      const under = fetching.get(icon) ?? fetch(icon).finally(() => fetching.delete(icon));
      fetching.set(icon, under);
      return under;
    },
  };
}
