import { createRandom } from './prose.ts';
import { hashText } from './tokenizer.ts';

/** Made-up probabilities in vLLM's shapes; the same token at the same place always gets the same ones. */

const END_TEXT = '<|im_end|>';
const OTHERS = [' the', ' of', ' water', ' a', ',', '.', ' and', ' gate', ' in', ' to', ' river', ' stone'];

interface Ranked {
  token: string;
  logprob: number;
}

function rank(token: string, position: number, alternatives: number): Ranked[] {
  const random = createRandom(hashText(token) ^ Math.imul(position + 1, 0x9e37_79b1));
  let logprob = -(random() % 2_000_000) / 1_000_000;
  const ranked: Ranked[] = [{ token, logprob }];
  for (let index = 1; index < alternatives; index += 1) {
    logprob -= 0.25 + (random() % 1_000_000) / 500_000;
    ranked.push({ token: OTHERS[(random() + index) % OTHERS.length] ?? '', logprob });
  }
  return ranked;
}

/** The text of a token as logprobs show it: the end marker has one of its own. */
function shown(token: string, last: boolean): string {
  return last ? END_TEXT : token;
}

function chatEntry({ token, logprob }: Ranked): string {
  return `"token":${JSON.stringify(token)},"logprob":${logprob},"bytes":[${[...Buffer.from(token)].join(',')}]`;
}

/** Printed tokens, where they stand, whether the last is the end marker, how many alternatives. */
interface Printed {
  tokens: readonly string[];
  from: number;
  endMarker: boolean;
  alternatives: number;
}

/** `choices[].logprobs` of a chat. */
export function chatLogprobs(printed: Printed): string {
  const { tokens, from, endMarker, alternatives } = printed;
  const entries = tokens.map((token, index) => {
    const text = shown(token, endMarker && index === tokens.length - 1);
    const ranked = rank(text, from + index, alternatives);
    const top = ranked.slice(0, alternatives).map((item) => `{${chatEntry(item)}}`);
    const [own] = ranked;
    return own === undefined ? '' : `{${chatEntry(own)},"top_logprobs":[${top.join(',')}]}`;
  });
  return `{"content":[${entries.join(',')}]}`;
}

/** `choices[].logprobs` of a completion; `textOffset` is where its text starts. */
export function completionLogprobs(printed: Printed, textOffset: number): string {
  const { tokens, from, endMarker, alternatives } = printed;
  let at = textOffset;
  const offsets: number[] = [];
  const logprobs: number[] = [];
  const texts: string[] = [];
  const tops: Record<string, number>[] = [];
  tokens.forEach((token, index) => {
    const text = shown(token, endMarker && index === tokens.length - 1);
    const ranked = rank(text, from + index, Math.max(1, alternatives));
    offsets.push(at);
    at += text.length;
    logprobs.push(ranked[0]?.logprob ?? 0);
    texts.push(text);
    tops.push(Object.fromEntries(ranked.map((item) => [item.token, item.logprob])));
  });
  return JSON.stringify({ text_offset: offsets, token_logprobs: logprobs, tokens: texts, top_logprobs: tops });
}
