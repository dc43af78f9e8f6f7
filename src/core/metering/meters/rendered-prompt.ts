import { forEachElement, scanDocument } from '#base/json/json.ts';
import type { JsonMeterResult } from './json-meter.ts';
import type { PiecesMeter } from './pieces-meter.ts';
import { noText } from './usage-of.ts';

const seen = { last: null, running: null, text: noText };

/** Returns the count of a prompt that vLLM has rendered; null if the answer has no token ids. */
function countOf(text: string): string | null {
  const scan = scanDocument(text);
  const ids = scan.ok ? scan.members.find(({ key }) => key === 'token_ids') : undefined;
  if (ids === undefined) return null;
  let tokens = 0;
  const end = forEachElement(text, ids.valueStart, () => {
    tokens += 1;
    return true;
  });
  return end === -1 ? null : JSON.stringify({ object: 'response.input_tokens', input_tokens: tokens });
}

/** Reads the answer of vLLM's `/v1/responses/render`, and writes only the number of its token ids. */
export function meterRenderedPrompt(text: string): JsonMeterResult {
  const count = countOf(text);
  return count === null ? { ok: false } : { ok: true, seen, aborted: false, write: () => count };
}

/** Reads a large answer of the same kind. It is kept whole: long prompts and media make megabytes of it. */
export function createRenderedPromptMeter(): PiecesMeter {
  const pieces: string[] = [];
  return {
    feed: (text) => void pieces.push(text),
    end() {
      const text = pieces.join('');
      const count = countOf(text);
      if (count === null) return { ok: false };
      return { ok: true, seen, aborted: false, splices: () => [{ start: 0, end: text.length, text: count }] };
    },
  };
}
