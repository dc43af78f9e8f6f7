/** Ways to count the prompts of a request. */
export type InputForm =
  /** Prompts that are each answered: as many as the list of `key` has; one without such a member. */
  | { readonly kind: 'prompts'; readonly key: string | null }
  | TextsForm
  /** Pairs that are compared: one text with many, or each with its own, in the members `keys`. */
  | { readonly kind: 'pairs'; readonly keys: readonly string[] };

/** Members that hold the prompts, as texts or as token ids. */
export function inputKeys(inputs: InputForm): readonly string[] {
  if (inputs.kind === 'pairs') return inputs.keys;
  return inputs.key === null ? [] : [inputs.key];
}

/** Texts that are read one by one. */
export interface TextsForm {
  readonly kind: 'texts';
  /** Member with a text or a list of texts. */
  readonly key: string;
  /** Member with one or several chats in place of texts. */
  readonly chatsKey: string;
  /** Member with the encoding of the answer; `joinedFormats[0]` without it. */
  readonly formatKey: string;
  /** Encodings in which several answers can be joined. */
  readonly joinedFormats: readonly string[];
}

/** Rules for reading the body of a request. Plain data: the thread that reads large bodies gets it by message. */
export interface RequestForm {
  readonly path: string;
  /** Fields that the route has, by name. */
  readonly fields: Readonly<Record<string, unknown>>;
  /** True if text is generated token by token, and may be streamed; false if the input is only read. */
  readonly generates: boolean;
  readonly inputs: InputForm;
  /** Member with the number of choices per prompt; null if there is always one. */
  readonly choicesKey: string | null;
  /** Members that limit the output tokens of a choice: the last one that is present applies. */
  readonly limitKeys: readonly string[];
  /** Member with the stream options that ask for usage; null without one. */
  readonly streamOptionsKey: string | null;
  /** Member that may be a list of items as in /v1/responses; null without one. */
  readonly itemsKey: string | null;
}
