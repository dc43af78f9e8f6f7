import { AppError } from '#base/errors.ts';
import { forEachElement, scanObject, type JsonMember } from '#base/json-scan.ts';

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
    /** A name under which vLLM keeps media, or finds those that it has: also of a part that has none of its own. */
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
const mediaSign = /_url|_embeds|_pil|"data:|"input_|"(?:image|audio|video|file|uuid)"|\\u00[2-7]/;

const urlKey = /_url$|^(?:image|video|audio|file)$/;
const tensorKey = /_embeds$/;
const textTypes: ReadonlySet<unknown> = new Set([
  'text',
  'input_text',
  'output_text',
  'reasoning_text',
  'summary_text',
  'refusal',
  'thinking',
  // Anthropic's; what a result holds is looked at for itself.
  'redacted_thinking',
  'tool_use',
  'tool_result',
  'tool_reference',
]);
/** What a text may have beside itself. */
const mediaKey = /_url$|_embeds$|_pil$|^(?:image|video|audio|file|input_audio|input_image|input_file)$/;

/** Far more than any engine takes, and longer than any address that is fetched. */
const remoteMax = 1000;
const urlBytesMax = 65_536;
/** Lists in lists: embeddings take many conversations at once, of messages with lists of parts. */
const listDepthMax = 4;

/**
 * Looks for media where something that could be media stands in the body. Nothing is parsed but addresses: a body of
 * megabytes is walked through by its offsets, whatever it is made of. Of a field that is there twice both are inspected.
 * @param text the body as latin1
 * @throws AppError invalid_request_error
 */
export function readMedia(text: string, members: Members): Media {
  if (!mediaSign.test(text)) return noMedia;
  const finder = new MediaFinder(text);
  for (const param of mediaMembers) {
    const member = members.get(param);
    if (member !== undefined) finder.inspect(member);
  }
  const { count, bytes, remote, params } = finder;
  return { present: count > 0, count, bytes, remote, params };
}

class MediaFinder {
  readonly #text: string;
  readonly remote: { url: string; param: string }[] = [];
  readonly params: { -readonly [name in keyof Media['params']]: string | null } = { ...noParams };
  count = 0;
  bytes = 0;
  #param = '';

  constructor(text: string) {
    this.#text = text;
  }

  inspect({ key, valueStart, valueEnd }: JsonMember): void {
    this.#param = key;
    // A query or document of a reranker stands alone or in a list.
    this.#each(valueStart, valueEnd, (start) => this.#message(start));
  }

  /** A content that is a text has no parts; nor has the output of a tool. */
  #message(at: number): void {
    for (const { key, valueStart, valueEnd } of this.#members(at)) {
      if (key === 'content' || key === 'output') this.#each(valueStart, valueEnd, (start) => this.#part(start));
    }
  }

  #part(at: number, depth = 0): void {
    const all = this.#members(at);
    this.#checkSource(all);
    const members = all.filter((member) => !this.#isNull(member));
    // The result of a tool is a list of parts.
    for (const { key, valueStart, valueEnd } of members) {
      if (key === 'content' && depth === 0) this.#each(valueStart, valueEnd, (start) => this.#part(start, depth + 1));
    }
    // vLLM ignores the type where there is one, and `image_url: null` beside it is the image that has this name.
    if (members.some(({ key }) => key === 'uuid')) this.params.uuid ??= this.#param;
    if (!members.some((member) => this.#isMedia(member))) return;
    this.count += 1;
    this.params.any ??= this.#param;
    for (const member of members) this.#note(member);
  }

  /** Anthropic's pictures. vLLM answers 500 to one whose source is no object, as if that were its own fault. */
  #checkSource(members: readonly JsonMember[]): void {
    if (
      !members.some(({ key, valueStart, valueEnd }) => key === 'type' && this.#string(valueStart, valueEnd) === 'image')
    )
      return;
    const isOdd = ({ key, valueStart }: JsonMember): boolean => key === 'source' && this.#text[valueStart] !== '{';
    if (members.some(isOdd)) throw this.#invalid('has a picture whose "source" is not an object');
  }

  #isMedia({ key, valueStart, valueEnd }: JsonMember): boolean {
    return mediaKey.test(key) || (key === 'type' && !textTypes.has(this.#string(valueStart, valueEnd)));
  }

  #note({ key, valueStart, valueEnd }: JsonMember): void {
    if (key === 'type') this.#noteKind(this.#string(valueStart, valueEnd) ?? '');
    else this.#noteKind(key);
    if (key.endsWith('_pil')) this.params.pil ??= this.#param;
    // Anthropic's pictures have a source.
    const isSource = key === 'source';
    if (mediaKey.test(key) || isSource) this.bytes += valueEnd - valueStart;
    if (!urlKey.test(key) && !isSource) return;
    this.#address(valueStart, valueEnd);
    for (const inner of this.#members(valueStart)) {
      if (inner.key === 'url') this.#address(inner.valueStart, inner.valueEnd);
    }
  }

  /** @param name of a member, or the type of a part */
  #noteKind(name: string): void {
    if (name === 'prompt_embeds') this.params.promptEmbeds ??= this.#param;
    else if (tensorKey.test(name)) this.params.tensor ??= this.#param;
  }

  #isNull({ valueStart, valueEnd }: JsonMember): boolean {
    return valueEnd - valueStart === 4 && this.#text.startsWith('null', valueStart);
  }

  #address(start: number, end: number): void {
    if (this.#isData(start)) return;
    const url = this.#string(start, end);
    if (url === null || /^data:/i.test(url)) return;
    if (this.remote.length >= remoteMax) throw this.#invalid(`names more than ${remoteMax} addresses`);
    this.remote.push({ url, param: this.#param });
  }

  /** Whether a data: URL stands there, written as nearly all are; other notations are parsed. */
  #isData(at: number): boolean {
    return this.#text.startsWith('"data:', at);
  }

  /** A string's value; null for what is none. */
  #string(start: number, end: number): string | null {
    if (this.#text[start] !== '"') return null;
    if (end - start > urlBytesMax) throw this.#invalid(`has a type or an address of more than ${urlBytesMax} bytes`);
    try {
      return JSON.parse(Buffer.from(this.#text.slice(start, end), 'latin1').toString('utf8')) as string;
    } catch {
      throw this.#invalid('is not valid JSON');
    }
  }

  /** The members of an object; none of anything else. */
  #members(at: number): readonly JsonMember[] {
    if (this.#text[at] !== '{') return [];
    const scan = scanObject(this.#text, at);
    if (!scan.ok) throw this.#invalid('is not valid JSON');
    return scan.members;
  }

  /** The elements of a list and of the lists in it, or the one thing that is no list. */
  #each(start: number, end: number, visit: (at: number) => void, depth = 1): void {
    if (this.#text[start] !== '[') {
      visit(start);
      return;
    }
    if (depth > listDepthMax) throw this.#invalid('is nested too deep');
    const next = forEachElement(this.#text, start, (at, atEnd) => {
      this.#each(at, atEnd, visit, depth + 1);
      return true;
    });
    if (next !== end) throw this.#invalid('is not valid JSON');
  }

  #invalid(what: string): AppError {
    const message = `The value of "${this.#param}" ${what}.`;
    return new AppError('invalid_request_error', { message, param: this.#param });
  }
}
