/** How the prompts of a request are counted. */
export type InputForm =
  /** Prompts of which each is answered: as many as the list of `key` has; one where there is no such member. */
  | { readonly kind: 'prompts'; readonly key: string | null }
  | TextsForm
  /** Pairs that are compared: one text with many, or each with its own, whatever names both have. */
  | { readonly kind: 'pairs'; readonly keys: readonly string[] };

/** Members that hold the prompts, as texts or as token ids. */
export function inputKeys(inputs: InputForm): readonly string[] {
  if (inputs.kind === 'pairs') return inputs.keys;
  return inputs.key === null ? [] : [inputs.key];
}

/** Texts that are read each for itself. */
export interface TextsForm {
  readonly kind: 'texts';
  /** The member that is a text, or a list of texts. */
  readonly key: string;
  /** The member that holds one or several chats in the place of texts. */
  readonly chatsKey: string;
  /** The member that says how the answer is written, which is `joinedFormats[0]` where there is none. */
  readonly formatKey: string;
  /** Ways of writing it of which several answers can be made one. */
  readonly joinedFormats: readonly string[];
}

/** How the body of a request is read. Plain data: the thread that reads large bodies gets it by message. */
export interface RequestForm {
  readonly path: string;
  /** Text is made token by token, and may be streamed; otherwise the input is read and that is all. */
  readonly generates: boolean;
  readonly inputs: InputForm;
  /** The member with the number of choices per prompt; null where there is always one. */
  readonly choicesKey: string | null;
  /** Members that limit the output tokens of a choice: the last one that is there counts. */
  readonly limitKeys: readonly string[];
  /** The member with the options by which a stream is asked for its usage; null where it has none. */
  readonly streamOptionsKey: string | null;
  /** The member that may be a list of items as /v1/responses has them; null where there is none. */
  readonly itemsKey: string | null;
}
