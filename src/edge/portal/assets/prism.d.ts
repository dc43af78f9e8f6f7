/** The browser module that the gateway makes of prismjs: the languages, without what searches a page for code. */

export interface Token {
  readonly type: string;
  readonly alias?: string | readonly string[];
  readonly content: string | Token | readonly (string | Token)[];
}

export const Prism: {
  readonly languages: Readonly<Record<string, unknown>>;
  readonly tokenize: (text: string, grammar: unknown) => readonly (string | Token)[];
};
