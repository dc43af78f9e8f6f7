import type { JsonMember } from '#base/json-scan.ts';
import { parseMember } from './member.ts';

/** Pictures, sound and films in a body: their tokens are not in its text, and some are fetched by the engine. */
export interface Media {
  /** A part of a message may be something else than text. */
  readonly present: boolean;
  readonly count: number;
  /** What they take of the body, about. */
  readonly bytes: number;
  /** Addresses that are no data URLs, each with the member of the body in which it stands. */
  readonly remote: readonly { readonly url: string; readonly param: string }[];
  /** The member of the body in which there is one of these; null without one. */
  readonly params: {
    readonly any: string | null;
    /** A name under which vLLM is to keep the media. */
    readonly uuid: string | null;
    /** Serialized tensors in the place of media. */
    readonly tensor: string | null;
    /** Serialized tensors in the place of text. */
    readonly promptEmbeds: string | null;
    /** An object of Python's memory, which no request can have. */
    readonly pil: string | null;
  };
}

type Members = ReadonlyMap<string, JsonMember>;

const noParams: Media['params'] = { any: null, uuid: null, tensor: null, promptEmbeds: null, pil: null };
const noMedia: Media = { present: false, count: 0, bytes: 0, remote: [], params: noParams };

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
const tensorKey = /_embeds$/;
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
  const reader = new MediaReader();
  for (const param of mediaMembers) {
    const member = members.get(param);
    if (member === undefined) continue;
    reader.read(parseMember(text, member), param);
  }
  return reader;
}

class MediaReader implements Media {
  readonly remote: { url: string; param: string }[] = [];
  readonly params: { -readonly [name in keyof Media['params']]: string | null } = { ...noParams };
  count = 0;
  bytes = 0;

  get present(): boolean {
    return this.count > 0;
  }

  /** Messages, alone or in lists of lists: embeddings take many conversations at once. */
  read(value: unknown, param: string): void {
    if (Array.isArray(value)) for (const item of value as unknown[]) this.read(item, param);
    else if (typeof value === 'object' && value !== null) this.#content(Reflect.get(value, 'content'), param);
  }

  /** A content that is a text has no parts. */
  #content(value: unknown, param: string): void {
    if (Array.isArray(value)) for (const item of value as unknown[]) this.#content(item, param);
    else if (typeof value === 'object' && value !== null) this.#part(value, param);
  }

  #part(part: object, param: string): void {
    const entries = Object.entries(part);
    const type: unknown = Reflect.get(part, 'type') ?? 'text';
    if (textTypes.has(type) && !entries.some(([key]) => mediaKey.test(key))) return;
    this.count += 1;
    this.params.any ??= param;
    this.#note(type, null, param);
    for (const [key, value] of entries) {
      if (value === null) continue;
      if (key === 'uuid') this.params.uuid ??= param;
      this.#note(key, value, param);
    }
  }

  /** @param name of a member, or the part's type */
  #note(name: unknown, value: unknown, param: string): void {
    if (typeof name !== 'string') return;
    this.bytes += lengthOf(value);
    if (name === 'prompt_embeds') this.params.promptEmbeds ??= param;
    else if (tensorKey.test(name)) this.params.tensor ??= param;
    else if (name.endsWith('_pil') && value !== null) this.params.pil ??= param;
    else if (urlKey.test(name)) this.#address(value, param);
  }

  #address(value: unknown, param: string): void {
    const url: unknown = typeof value === 'object' && value !== null ? Reflect.get(value, 'url') : value;
    if (typeof url === 'string' && !/^data:/i.test(url)) this.remote.push({ url, param });
  }
}

/** Of the texts in a value; escapes in the body make it longer there. */
function lengthOf(value: unknown): number {
  if (typeof value === 'string') return value.length;
  if (typeof value !== 'object' || value === null) return 0;
  return Object.values(value).reduce((sum: number, inner: unknown) => sum + lengthOf(inner), 0);
}
