import { findMistake, type JsonMistake, pathAt } from '#base/json/json.ts';
import { estimatePromptTokens } from '#core/admission/admission.ts';
import type { OverContext } from '#edge/inference/answer/answer.ts';
import { parseMember } from '#edge/inference/json-member.ts';
import { type Endpoint, findItems, type InputPart, type RequestFields } from '#edge/inference/request/request.ts';
import { findHalf } from '#edge/inference/surrogates.ts';

type SentEndpoint = Pick<Endpoint, 'answers' | 'inputs' | 'limitKeys' | 'mayBeUnserved' | 'promptKey'>;

/** The request that an engine rejected. Finds which of its fields the engine meant. */
export class SentRequest {
  readonly isForAdapter: boolean;
  readonly #endpoint: SentEndpoint;
  readonly #fields: Pick<RequestFields, 'media' | 'members' | 'text' | 'split'>;
  readonly #part: InputPart | null;

  /**
   * @param isForAdapter the request names a LoRA adapter
   * @param part the part of the texts that was sent; null for all of them
   */
  constructor(endpoint: SentEndpoint, fields: RequestFields, isForAdapter: boolean, part: InputPart | null) {
    this.#endpoint = endpoint;
    this.#fields = fields;
    this.isForAdapter = isForAdapter;
    this.#part = part;
  }

  get mayBeUnserved(): boolean {
    return this.#endpoint.mayBeUnserved;
  }

  has(key: string): boolean {
    return this.#fields.members.has(key);
  }

  /** Returns the protocol's own message for a request that is too long for its model; null if the protocol has none. */
  overContext({ input, ...over }: OverContext): string | null {
    const { text, media } = this.#fields;
    const estimate = estimatePromptTokens({ bodyBytes: text.length - media.bytes });
    return this.#endpoint.answers.overContext?.({ ...over, input: Math.max(input, estimate) }) ?? null;
  }

  /** Returns the value of a short member; undefined if it is absent, long or not valid JSON. */
  value(key: string): unknown {
    const member = this.#fields.members.get(key);
    if (member === undefined) return undefined;
    try {
      return parseMember(this.#fields.text, member);
    } catch {
      return undefined;
    }
  }

  /** Returns the syntax error in the body; null if there is none, or if the body takes long to read. */
  findMistake(): JsonMistake | null {
    const { text } = this.#fields;
    return typeof text === 'string' && text !== '' ? findMistake(text) : null;
  }

  /**
   * Returns the path of the value with half of a surrogate pair; null if there is none, or the body takes long to read.
   */
  findHalfPair(): string | null {
    const { text } = this.#fields;
    const at = typeof text === 'string' ? findHalf(text) : -1;
    return at === -1 || typeof text !== 'string' ? null : pathAt(text, at) || null;
  }

  /** Members that may hold the input, sent or not; the endpoint's first name comes first. */
  get inputKeys(): readonly string[] {
    const { inputs, promptKey } = this.#endpoint;
    if (inputs.kind === 'prompts') return promptKey === null ? [] : [promptKey];
    return inputs.kind === 'texts' ? [inputs.key, inputs.chatsKey] : inputs.keys;
  }

  /** Members with input that were sent. */
  get sentInputs(): readonly string[] {
    return this.inputKeys.filter((key) => this.has(key));
  }

  /** The member with the input; of several, the first empty one, else the first. */
  get inputKey(): string | null {
    const sent = this.sentInputs;
    return sent.find((key) => isEmpty(this.value(key))) ?? sent[0] ?? null;
  }

  /** The member of which a part was sent; null for a whole request. */
  get splitKey(): string | null {
    return this.#part === null ? null : (this.#fields.split?.key ?? null);
  }

  /** Returns the name of a field in the whole request, from its name in the part that the engine got. */
  nameInWhole(param: string): string {
    const [, key, index, rest = ''] = /^(\w+)\[(\d+)\](.*)$/.exec(param) ?? [];
    if (this.#part === null || key !== this.splitKey) return param;
    return `${key}[${this.#part.first + Number(index)}]${rest}`;
  }

  /**
   * Returns a sentence to follow the one about a field, with the texts that it may be about; '' if all texts were sent.
   */
  placeInWhole(param: string | null): string {
    if (this.#part === null || param === null || param !== this.splitKey) return '';
    const { first, count } = this.#part;
    const last = count === 1 ? '' : ` to "${param}[${first + count - 1}]"`;
    return ` The error is in ${count === 1 ? '' : 'one of '}"${param}[${first}]"${last}.`;
  }

  /** Name of the first empty text of a part; null also if all texts were sent. */
  get emptyText(): string | null {
    return this.#findText((text) => /^(?:""|\[\s*\])$/.test(text)).at(0) ?? null;
  }

  /**
   * Returns the name of the text of a part that has more than `tokensMax` tokens; null also if it may be one of
   * several.
   */
  longText(tokensMax: number): string | null {
    const listed = this.#findText((text) => text.startsWith('[') && text.split(',').length > tokensMax);
    // A token is at least one byte.
    const possible = this.#findText((text) => text.length - 2 > tokensMax);
    return listed.at(0) ?? (possible.length === 1 ? (possible[0] ?? null) : null);
  }

  /** Returns the names of the part's texts whose JSON satisfies `isMeant`. */
  #findText(isMeant: (json: string) => boolean): readonly string[] {
    const { split, text } = this.#fields;
    const part = this.#part;
    if (part === null || split === null) return [];
    const list = `[${text.slice(part.start, part.end)}]`;
    const { starts, ends } = findItems(list, 0, part.count) ?? { starts: [], ends: [] };
    return starts.flatMap((start, index) =>
      isMeant(list.slice(start, ends[index])) ? [`${split.key}[${part.first + index}]`] : [],
    );
  }

  /** The member that limits the output; null without a limit. */
  get limitKey(): string | null {
    return this.#endpoint.limitKeys.findLast((key) => this.has(key)) ?? null;
  }

  /** The member with the grammar of the answer; null without one. */
  get grammarKey(): string | null {
    const constraint = this.value('structured_outputs');
    if (typeof constraint === 'object' && constraint !== null) {
      const kind = constraintKinds.find((name) => Reflect.get(constraint, name) !== undefined);
      return kind === undefined ? 'structured_outputs' : `structured_outputs.${kind}`;
    }
    return grammarMembers.find((key) => this.has(key)) ?? null;
  }
}

/** Kinds in vLLM's `structured_outputs`, in the order in which vLLM checks them. */
const constraintKinds = ['json', 'regex', 'choice', 'grammar', 'json_object', 'structural_tag'];
const grammarMembers = ['response_format', 'tools'];

function isEmpty(value: unknown): boolean {
  return value === '' || (Array.isArray(value) && value.every(isEmpty));
}
