import MarkdownIt from './markdown-it.js';
import { codeBlock, element } from './playground-dom.js';
import { highlight } from './playground-highlight.js';

/**
 * Shows the text of an answer as Markdown or as it is. A prompt of a stranger can decide what a model writes, so each
 * element is created from a token of the parser: only the elements listed here, with no attribute of the text except
 * checked links. HTML stays text, and images are links.
 */

/** @typedef {import('./markdown-it.js').Token} Token */

const parser = new MarkdownIt({ html: false, linkify: true });
parser.linkify.set({ fuzzyLink: false, fuzzyEmail: false });

const renderEveryMs = 100;
const linkProtocols = ['http:', 'https:', 'mailto:'];
const blockTags = /** @type {const} */ (['p', 'blockquote', 'ul', 'ol', 'li', 'em', 'strong', 's']);
const tableTags = /** @type {const} */ (['table', 'thead', 'tbody', 'tr', 'th', 'td']);
const tags = [...blockTags, ...tableTags];

export class AnswerText {
  /** @param {boolean} isPlain */
  constructor(isPlain) {
    this.root = element('div', 'answer-text');
    this.text = '';
    this.isPlain = isPlain;
    this.isComplete = false;
    /** The blocks that are shown, each with its source. @type {{ source: string, nodes: Node[] }[]} */
    this.blocks = [];
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.timer = undefined;
  }

  /** @param {string} text */
  append(text) {
    this.text += text;
    this.timer ??= setTimeout(() => this.show(), renderEveryMs);
  }

  /** @param {boolean} isPlain */
  setPlain(isPlain) {
    this.isPlain = isPlain;
    this.blocks = [];
    this.root.replaceChildren();
    this.show();
  }

  /** Shows the whole text, with its code in colors. */
  end() {
    this.isComplete = true;
    this.show();
  }

  /** Shows all of the text now. */
  show() {
    clearTimeout(this.timer);
    this.timer = undefined;
    this.root.classList.toggle('plain', this.isPlain);
    if (this.isPlain) this.root.textContent = this.text;
    else this.#render();
    if (this.isComplete) highlight(this.root);
  }

  /** Replaces the blocks that changed only: a growing answer is not drawn, or read out, from its start again. */
  #render() {
    const blocks = blocksOf(this.text);
    let same = 0;
    while (same < blocks.length && blocks[same]?.source === this.blocks[same]?.source) same++;
    for (const { nodes } of this.blocks.splice(same)) for (const node of nodes) this.root.removeChild(node);
    for (const { source, tokens } of blocks.slice(same)) {
      const nodes = [...nodesOf(tokens).childNodes];
      this.root.append(...nodes);
      this.blocks.push({ source, nodes });
    }
  }
}

/**
 * Returns the outermost blocks. The source of a block includes the link definitions, which change links anywhere in the
 * text.
 * @param {string} text
 */
function blocksOf(text) {
  // The parser's lines end at these, too.
  const lines = text.split(/\r\n?|\n/);
  /** @type {import('./markdown-it.js').Env} */
  const env = {};
  const all = parser.parse(text, env);
  const definitions = JSON.stringify(env.references ?? {});
  /** @type {{ source: string, tokens: Token[] }[]} */
  const blocks = [];
  let depth = 0;
  for (const token of all) {
    if (depth === 0) {
      const [from, to] = token.map ?? [0, lines.length];
      blocks.push({ source: `${definitions} ${token.type} ${lines.slice(from, to).join('\n')}`, tokens: [] });
    }
    blocks.at(-1)?.tokens.push(token);
    depth += token.nesting;
  }
  return blocks;
}

/** @param {readonly Token[]} tokens */
function nodesOf(tokens) {
  const top = document.createDocumentFragment();
  /** @type {(HTMLElement | DocumentFragment)[]} */
  const open = [top];
  for (const token of tokens) {
    const parent = open.at(-1) ?? top;
    if (token.nesting < 0) open.pop();
    else if (token.nesting === 0) parent.append(leafOf(token));
    else {
      const node = openingOf(token);
      parent.append(node);
      open.push(node);
    }
  }
  return top;
}

/** @param {Token} token @returns {HTMLElement} */
function openingOf(token) {
  if (token.type === 'link_open') return linkOf(attribute(token, 'href'));
  // The headings of an answer are below the name of its model, whatever their level.
  if (token.type === 'heading_open') return element('h3', `heading-${token.tag}`);
  const tag = tags.find((one) => one === token.tag);
  const node = element(tag ?? 'span', '');
  const start = Number(token.attrGet('start') ?? 1);
  if (node instanceof HTMLOListElement && Number.isSafeInteger(start)) node.start = start;
  return node;
}

/**
 * @param {Token} token
 * @param {string} name
 */
function attribute(token, name) {
  const value = token.attrGet(name);
  return value === null ? null : String(value);
}

/** Returns a link, or a plain element for an address of another kind. @param {string | null} href */
function linkOf(href) {
  const url = href === null ? null : URL.parse(href);
  if (url === null || !linkProtocols.includes(url.protocol)) return element('span', '');
  const link = element('a', '');
  link.href = url.href;
  link.rel = 'noopener noreferrer nofollow';
  link.target = '_blank';
  link.title = url.href;
  return link;
}

/** @param {Token} token @returns {Node} */
function leafOf(token) {
  const { content } = token;
  switch (token.type) {
    case 'inline':
      return nodesOf(token.children ?? []);
    case 'softbreak':
    case 'hardbreak':
      return element('br', '');
    case 'hr':
      return element('hr', '');
    case 'code_inline':
      return element('code', '', content);
    case 'fence':
      return codeBlock(content, /^\S*/.exec(token.info)?.[0]);
    case 'code_block':
      return codeBlock(content);
    case 'image':
      return imageLink(content, attribute(token, 'src'));
    default:
      return document.createTextNode(content);
  }
}

/**
 * Returns an image as a link: loading the image would report its reader to the site.
 * @param {string} text
 * @param {string | null} source
 */
function imageLink(text, source) {
  const link = linkOf(source);
  link.textContent = `image: ${text === '' ? (source ?? '') : text}`;
  return link;
}
