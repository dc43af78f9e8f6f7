import { ListPieces } from '#base/json/json.ts';
import {
  type AnswerCollector,
  type AnswerFormat,
  type LargeAnswerResult,
  TextBlocks,
} from '#edge/inference/answer/answer.ts';
import type { InputPart } from '#edge/inference/request/request.ts';

/** Bytes that have arrived of the answers to all parts of a request. */
export interface WholeBytes {
  bytes: number;
}

export interface PartAnswerOptions {
  readonly part: InputPart;
  readonly whole: WholeBytes;
  readonly answers: Pick<AnswerFormat, 'meterJson'>;
}

/** Size of most base64 answers. Answers with numbers are several times as large. */
const firstBlockBytes = 65_536;

/**
 * Collects the answer to one part of many texts. Keeps the vectors, renumbered for the whole list, apart from the text
 * that the engine wrote around them. The kept text contains only vectors, so that the vectors of all parts, one after
 * the other, are the list of the whole answer.
 */
export class PartAnswer implements AnswerCollector {
  /** Text that the engine wrote around the vectors; '' before the end. */
  around = '';
  /** Bytes of this part only. */
  ownBytes = 0;
  readonly #options: PartAnswerOptions;
  readonly #pieces: ListPieces;
  #blocks: TextBlocks | null = new TextBlocks(firstBlockBytes);

  constructor(options: PartAnswerOptions) {
    const { first } = options.part;
    this.#options = options;
    const onElements = (text: string): void => this.#blocks?.add(text);
    this.#pieces = new ListPieces({ listKey: 'data', numberKey: 'index', added: first, onElements });
    if (first > 0) this.#blocks?.add(',');
  }

  get bytes(): number {
    return this.#options.whole.bytes;
  }

  add(text: string): void {
    this.ownBytes += text.length;
    this.#options.whole.bytes += text.length;
    this.#pieces.feed(text);
  }

  drop(): void {
    this.#blocks = null;
  }

  /** Rejects an answer with more or fewer vectors than texts, or with numbers beyond them. */
  end(): LargeAnswerResult {
    const { part, answers } = this.#options;
    const around = this.#pieces.end();
    if (around === null || around.elements !== part.count || around.largest >= part.count) return { ok: false };
    if (!isJson(around.text)) return { ok: false };
    const metered = answers.meterJson(around.text, { rename: null });
    if (!metered.ok) return metered;
    this.around = around.text;
    const vectors = this.#blocks?.end() ?? [];
    return { ok: true, write: () => vectors, seen: metered.seen, aborted: metered.aborted };
  }
}

/** @param text as latin1 */
function isJson(text: string): boolean {
  try {
    JSON.parse(Buffer.from(text, 'latin1').toString('utf8'));
    return true;
  } catch {
    return false;
  }
}
