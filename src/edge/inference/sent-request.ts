import { findMistake, type JsonMistake } from '#base/json-mistake.ts';
import { pathAt } from '#base/json-path.ts';
import { estimatePromptTokens } from '#core/admission/admission.ts';
import type { Endpoint } from './endpoints.ts';
import type { RequestFields } from './fields.ts';
import { parseMember } from './member.ts';
import type { OverContext } from './openai-answers.ts';
import { findItems, type InputPart } from './split-input.ts';
import { findHalf } from './surrogates.ts';

type SentEndpoint = Pick<Endpoint, 'answers' | 'inputs' | 'limitKeys' | 'mayBeUnserved' | 'promptKey'>;

/** The request that an engine refused, as far as it says which of its fields the engine meant. */
export class SentRequest {
  readonly isForAdapter: boolean;
  readonly #endpoint: SentEndpoint;
  readonly #fields: Pick<RequestFields, 'media' | 'members' | 'text' | 'split'>;
  readonly #part: InputPart | null;

  /**
   * @param isForAdapter it names a LoRA adapter
   * @param part of its texts that was sent; null for all of them
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

  /** What its protocol says of it where it is too long for its model; null where that has no words of its own. */
  overContext({ input, ...over }: OverContext): string | null {
    const { text, media } = this.#fields;
    const estimate = estimatePromptTokens({ bodyBytes: text.length - media.bytes });
    return this.#endpoint.answers.overContext?.({ ...over, input: Math.max(input, estimate) }) ?? null;
  }

  /** The value of a short member; undefined for one that is not there, long or no JSON. */
  value(key: string): unknown {
    const member = this.#fields.members.get(key);
    if (member === undefined) return undefined;
    try {
      return parseMember(this.#fields.text, member);
    } catch {
      return undefined;
    }
  }

  /** The mistake for which the body is no JSON; null where there is none, and for a body that takes long to read. */
  findMistake(): JsonMistake | null {
    const { text } = this.#fields;
    return typeof text === 'string' && text !== '' ? findMistake(text) : null;
  }

  /** The value in which half of a surrogate pair stands; null where none does, and for a body that takes long to read. */
  findHalfPair(): string | null {
    const { text } = this.#fields;
    const at = typeof text === 'string' ? findHalf(text) : -1;
    return at === -1 || typeof text !== 'string' ? null : pathAt(text, at) || null;
  }

  /** Names of the members that hold the input, sent or not, the endpoint's first name for it before the others. */
  get inputKeys(): readonly string[] {
    const { inputs, promptKey } = this.#endpoint;
    if (inputs.kind === 'prompts') return promptKey === null ? [] : [promptKey];
    return inputs.kind === 'texts' ? [inputs.key, inputs.chatsKey] : inputs.keys;
  }

  /** The members that hold its input. */
  get sentInputs(): readonly string[] {
    return this.inputKeys.filter((key) => this.has(key));
  }

  /** The member that holds its input; of several the one that holds nothing, else the first. */
  get inputKey(): string | null {
    const sent = this.sentInputs;
    return sent.find((key) => isEmpty(this.value(key))) ?? sent[0] ?? null;
  }

  /** The member of which a part was sent; null for a whole request. */
  get splitKey(): string | null {
    return this.#part === null ? null : (this.#fields.split?.key ?? null);
  }

  /** The name of a field in the whole request, by its name in the part that the engine got. */
  nameInWhole(param: string): string {
    const [, key, index, rest = ''] = /^(\w+)\[(\d+)\](.*)$/.exec(param) ?? [];
    if (this.#part === null || key !== this.splitKey) return param;
    return `${key}[${this.#part.first + Number(index)}]${rest}`;
  }

  /** In words, to follow a sentence on a field: which texts it may be about. */
  placeInWhole(param: string | null): string {
    if (this.#part === null || param === null || param !== this.splitKey) return '';
    const { first, count } = this.#part;
    const last = count === 1 ? '' : ` to "${param}[${first + count - 1}]"`;
    return ` It is ${count === 1 ? '' : 'one of '}"${param}[${first}]"${last}.`;
  }

  /** The first text of a part that is empty; null also where all texts were sent. */
  get emptyText(): string | null {
    return this.#findText((text) => /^(?:""|\[\s*\])$/.test(text)).at(0) ?? null;
  }

  /** The one text of a part that is longer than so many tokens; null also where it may be one of several. */
  longText(tokensMax: number): string | null {
    const listed = this.#findText((text) => text.startsWith('[') && text.split(',').length > tokensMax);
    // A token is at least one byte.
    const possible = this.#findText((text) => text.length - 2 > tokensMax);
    return listed.at(0) ?? (possible.length === 1 ? (possible[0] ?? null) : null);
  }

  /** Names of the texts of a part that are so, by their JSON. */
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

  /** The member that limits the output; null where none does. */
  get limitKey(): string | null {
    return this.#endpoint.limitKeys.findLast((key) => this.has(key)) ?? null;
  }

  /** What its answer's grammar is made of. */
  get grammarKey(): string | null {
    const constraint = this.value('structured_outputs');
    if (typeof constraint === 'object' && constraint !== null) {
      const kind = constraintKinds.find((name) => Reflect.get(constraint, name) !== undefined);
      return kind === undefined ? 'structured_outputs' : `structured_outputs.${kind}`;
    }
    return grammarMembers.find((key) => this.has(key)) ?? null;
  }
}

/** Of vLLM's `structured_outputs`, in the order in which it looks at them. */
const constraintKinds = ['json', 'regex', 'choice', 'grammar', 'json_object', 'structural_tag'];
const grammarMembers = [
  'response_format',
  'guided_json',
  'guided_regex',
  'guided_choice',
  'guided_grammar',
  'structural_tag',
  'tools',
];

function isEmpty(value: unknown): boolean {
  return value === '' || (Array.isArray(value) && value.every(isEmpty));
}
