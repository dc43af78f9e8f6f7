import { Prism } from './prism.js';

/**
 * A worker that divides code into colored pieces. Its patterns take long for some texts, which a model may write, so the
 * page ends a worker that does not answer in time.
 */

/**
 * @typedef {import('./prism.js').Token} Token
 * @typedef {'' | 'comment' | 'keyword' | 'string' | 'number' | 'name' | 'inserted' | 'deleted'} Kind
 * @typedef {[kind: Kind, text: string]} Piece
 */

/** Names of languages that prismjs has by another name. @type {Readonly<Record<string, string>>} */
const otherNames = {
  'c#': 'csharp',
  'c++': 'cpp',
  console: 'bash',
  golang: 'go',
  ps1: 'powershell',
  rs: 'rust',
  terraform: 'hcl',
  tf: 'hcl',
  zsh: 'bash',
};

/** prismjs's types of tokens. Those that are not listed look like the text around them. */
const types = {
  comment: ['comment', 'prolog', 'doctype', 'cdata'],
  keyword: ['keyword', 'atrule', 'important', 'tag', 'builtin', 'title'],
  string: ['string', 'char', 'attr-value', 'regex', 'url', 'template-string', 'heredoc'],
  number: ['number', 'boolean', 'constant', 'symbol', 'null'],
  name: ['function', 'class-name', 'selector', 'attr-name', 'property', 'key', 'decorator', 'annotation', 'macro'],
  inserted: ['inserted-sign'],
  deleted: ['deleted-sign'],
};

const kinds = new Map(
  /** @type {[Kind, string[]][]} */ (Object.entries(types)).flatMap(([kind, names]) =>
    names.map((name) => /** @type {const} */ ([name, kind])),
  ),
);

/**
 * @param {string | Token | readonly (string | Token)[]} content
 * @param {Kind} kind of the text around it
 * @returns {Piece[]}
 */
function piecesOf(content, kind) {
  if (typeof content === 'string') return [[kind, content]];
  if ('type' in content) return piecesOf(content.content, kinds.get(content.type) ?? kind);
  return content.flatMap((one) => piecesOf(one, kind));
}

/** @param {string} text @param {string} language @returns {Piece[]} */
function divide(text, language) {
  const name = otherNames[language] ?? language;
  const grammar = Object.hasOwn(Prism.languages, name) ? Prism.languages[name] : undefined;
  return typeof grammar === 'object' ? piecesOf(Prism.tokenize(text, grammar), '') : [['', text]];
}

self.addEventListener('message', ({ data }) => {
  const { text, language } = /** @type {{ text: string, language: string }} */ (data);
  self.postMessage(divide(text, language));
});
