import { AppError } from '#base/errors.ts';
import { forEachElement, type JsonMember, scanObject } from '#base/json/json.ts';

/** Pictures, sound and video in a body. Their tokens are not in its text, and the engine fetches some of them. */
export interface Media {
  /** A part of a message may be something other than text. */
  readonly present: boolean;
  readonly count: number;
  /** Approximate bytes of the body that the media take. */
  readonly bytes: number;
  /** Addresses that are not data URLs, each with its member of the body. */
  readonly remote: readonly { readonly url: string; readonly param: string }[];
  /** Member of the body with media of each kind; null without any. */
  readonly params: {
    readonly any: string | null;
    /** Name under which vLLM stores media or finds stored media, also in a part without media of its own. */
    readonly uuid: string | null;
    /** Serialized tensors in place of media. */
    readonly tensor: string | null;
    /** Serialized tensors in place of text. */
    readonly promptEmbeds: string | null;
    /** An object in Python's memory, which no request can have. */
    readonly pil: string | null;
  };
}

type Members = ReadonlyMap<string, JsonMember>;

const noParams: Media['params'] = { any: null, uuid: null, tensor: null, promptEmbeds: null, pil: null };
const noMedia: Media = { present: false, count: 0, bytes: 0, remote: [], params: noParams };

/** Members that rerankers compare, by all names that vLLM accepts. */
export const comparedKeys = 'query queries documents items data_1 data_2 text_1 text_2'.split(' ');

/** Members of a body that may contain media. */
const mediaMembers = ['messages', 'input', ...comparedKeys];

/**
 * Matches every body with media, even if written as escapes (`"image\\u005furl"`). Tools and texts may match too. The
 * keys are those of vLLM's content parts, and of similar APIs.
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
  // Anthropic's types. The content of a result is inspected separately.
  'redacted_thinking',
  'tool_use',
  'tool_result',
  'tool_reference',
]);
/** Keys that may stand beside a text. */
const mediaKey = /_url$|_embeds$|_pil$|^(?:image|video|audio|file|input_audio|input_image|input_file)$/;

/** More addresses than any engine accepts, and longer than any address that is fetched. */
const remoteMax = 1000;
const urlBytesMax = 65_536;
/** Depth of nested lists: embeddings accept many conversations at once, of messages with lists of parts. */
const listDepthMax = 4;

/**
 * Finds media, if the body has anything that could be media. Only addresses are parsed: a body of megabytes is walked
 * by its offsets, whatever it contains. If a field is there twice, both are inspected.
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
    // A query or document of a reranker is a single value, or one in a list.
    this.#each(valueStart, valueEnd, (start) => this.#message(start));
  }

  /** Inspects the parts of a message. A content that is a text has no parts; nor has the text output of a tool. */
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
    // vLLM ignores the type if there is a uuid, and reads `image_url: null` beside it as the stored image of that name.
    if (members.some(({ key }) => key === 'uuid')) this.params.uuid ??= this.#param;
    if (!members.some((member) => this.#isMedia(member))) return;
    this.count += 1;
    this.params.any ??= this.#param;
    for (const member of members) this.#note(member);
  }

  /** Checks Anthropic's pictures. If a source is no object, vLLM answers 500, as for a fault of its own. */
  #checkSource(members: readonly JsonMember[]): void {
    if (
      !members.some(({ key, valueStart, valueEnd }) => key === 'type' && this.#string(valueStart, valueEnd) === 'image')
    )
      return;
    const isOdd = ({ key, valueStart }: JsonMember): boolean => key === 'source' && this.#text[valueStart] !== '{';
    if (members.some(isOdd)) throw this.#invalid('has an image whose "source" is not an object');
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
    if (this.remote.length >= remoteMax) throw this.#invalid(`has more than ${remoteMax} URLs`);
    this.remote.push({ url, param: this.#param });
  }

  /** True if a data: URL is there in the most common notation. Other notations are parsed. */
  #isData(at: number): boolean {
    return this.#text.startsWith('"data:', at);
  }

  /** Returns the value of a string; null if it is no string. */
  #string(start: number, end: number): string | null {
    if (this.#text[start] !== '"') return null;
    if (end - start > urlBytesMax)
      throw this.#invalid(`has a part whose "type" or URL is longer than ${urlBytesMax} bytes`);
    try {
      return JSON.parse(Buffer.from(this.#text.slice(start, end), 'latin1').toString('utf8')) as string;
    } catch {
      throw this.#invalid('is not valid JSON');
    }
  }

  /** Returns the members of an object; [] for any other value. */
  #members(at: number): readonly JsonMember[] {
    if (this.#text[at] !== '{') return [];
    const scan = scanObject(this.#text, at);
    if (!scan.ok) throw this.#invalid('is not valid JSON');
    return scan.members;
  }

  /** Visits the elements of a list and of the lists in it, or the single value that is no list. */
  #each(start: number, end: number, visit: (at: number) => void, depth = 1): void {
    if (this.#text[start] !== '[') {
      visit(start);
      return;
    }
    if (depth > listDepthMax) throw this.#invalid('is nested too deeply');
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
