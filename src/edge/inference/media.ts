import type { JsonMember } from '#base/json-scan.ts';
import { parseMember } from './member.ts';

/** Pictures, sound and films in a body: their tokens are not in its text, and some are fetched by the engine. */
export interface Media {
  /** A part of a message may be something else than text. */
  readonly present: boolean;
  /** Addresses that are no data URLs, each with the member of the body in which it stands. */
  readonly remote: readonly { readonly url: string; readonly param: string }[];
}

type Members = ReadonlyMap<string, JsonMember>;

const noMedia: Media = { present: false, remote: [] };

/** What rerankers compare, by all names that vLLM knows it by. */
export const comparedKeys = 'query queries documents items data_1 data_2 text_1 text_2'.split(' ');

/** Members of a body in which media may be named. */
const mediaMembers = ['messages', 'input', ...comparedKeys];

/**
 * What no body with media lacks, be it written as escapes (`"image\\u005furl"`); tools and texts may have it as well.
 * The keys are those of vLLM's content parts, and of APIs like it.
 */
const mediaSign = /_url|_embeds|_pil|"data:|"input_|"(?:image|audio|video|file)"|\\u00[2-7]/;

const urlKey = /_url$|^(?:image|video|audio|file)$/;
const textTypes: ReadonlySet<unknown> = new Set(['text', 'input_text', 'output_text', 'refusal', 'thinking']);
/** What a text may have beside itself. */
const mediaKey = /_url$|_embeds$|_pil$|^(?:image|video|audio|file|input_audio|input_image|input_file)$/;

/**
 * Messages are parsed only where something that could be media stands in the body.
 * @param text the body as latin1
 * @throws AppError invalid_request_error
 */
export function readMedia(text: string, members: Members): Media {
  if (!mediaSign.test(text)) return noMedia;
  const remote: { url: string; param: string }[] = [];
  let present = false;
  for (const param of mediaMembers) {
    const member = members.get(param);
    if (member === undefined) continue;
    const value = parseMember(text, member);
    // A query or document of a reranker stands alone or in a list.
    for (const part of partsOf(Array.isArray(value) ? value : [value])) {
      if (!isText(part)) present = true;
      for (const url of urlsOf(part)) remote.push({ url, param });
    }
  }
  return { present, remote };
}

/** The content parts of messages; a content that is a text has none. */
function partsOf(messages: readonly unknown[]): unknown[] {
  return messages.flatMap((message) => {
    const content: unknown =
      typeof message === 'object' && message !== null ? Reflect.get(message, 'content') : undefined;
    if (Array.isArray(content)) return content as unknown[];
    return typeof content === 'object' && content !== null ? [content] : [];
  });
}

function isText(part: unknown): boolean {
  if (typeof part !== 'object' || part === null) return true;
  const type: unknown = Reflect.get(part, 'type') ?? 'text';
  return textTypes.has(type) && !Object.keys(part).some((key) => mediaKey.test(key));
}

function urlsOf(part: unknown): string[] {
  if (typeof part !== 'object' || part === null) return [];
  return Object.entries(part).flatMap(([key, value]) => {
    if (!urlKey.test(key)) return [];
    const url: unknown = typeof value === 'object' && value !== null ? Reflect.get(value, 'url') : value;
    return typeof url === 'string' && !/^data:/i.test(url) ? [url] : [];
  });
}
