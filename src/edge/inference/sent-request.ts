import type { Endpoint } from './endpoints.ts';
import type { RequestFields } from './fields.ts';
import { parseMember } from './member.ts';

type SentEndpoint = Pick<Endpoint, 'inputs' | 'limitKeys' | 'mayBeUnserved' | 'promptKey'>;

/** The request that an engine refused, as far as it says which of its fields the engine meant. */
export class SentRequest {
  readonly isForAdapter: boolean;
  readonly #endpoint: SentEndpoint;
  readonly #fields: Pick<RequestFields, 'members' | 'text'>;

  /** @param isForAdapter it names a LoRA adapter */
  constructor(endpoint: SentEndpoint, fields: RequestFields, isForAdapter: boolean) {
    this.#endpoint = endpoint;
    this.#fields = fields;
    this.isForAdapter = isForAdapter;
  }

  get mayBeUnserved(): boolean {
    return this.#endpoint.mayBeUnserved;
  }

  has(key: string): boolean {
    return this.#fields.members.has(key);
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

  /** Names of the members that hold the input, sent or not, the endpoint's first name for it before the others. */
  get inputKeys(): readonly string[] {
    const { inputs, promptKey } = this.#endpoint;
    if (inputs.kind === 'prompts') return promptKey === null ? [] : [promptKey];
    return inputs.kind === 'texts' ? [...inputs.keys, inputs.chatsKey] : inputs.keys;
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
