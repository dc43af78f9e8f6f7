/** What a request may hold, by the settings. */
export interface SequencesMax {
  /** Prompts times choices of `/v1/completions`. */
  readonly sequencesMax: number;
  /** Documents of the others, that make no tokens. */
  readonly inputsMax: number;
  /** Texts of `/v1/embeddings`, where they are more. */
  readonly textsMax: number;
}

const listed = (names: readonly string[]): string => names.map((name) => `'${name}'`).join(', ');

/** Routes that a tokenizer answers: no engine counts anything of their requests, however they end. */
export const uncountedEndpoints = ['/v1/messages/count_tokens', '/v1/tokenize', '/v1/detokenize'] as const;

/**
 * Whether an engine's last word on a record `r` is not known: it may have counted more than the record has. A request that
 * it refused, or whose route it does not have (501), it has not begun.
 */
export const isUnsure = `(r.usage_source <> 'engine' and not r.cache_hit
      and (r.status < 400 or r.status >= 499 and r.status <> 501)
      and r.endpoint not in (select code from usage_names
        where name in (${listed(uncountedEndpoints)})))`;

/** Routes whose requests make no tokens. */
const readingEndpoints = ['/v1/embeddings', '/v1/rerank', '/v1/score'];

/** Whether a record `r` is of a request that makes no tokens. */
const isReading = `(r.endpoint in (select code from usage_names where name in (${listed(readingEndpoints)})))`;

/**
 * Of an unsure record that does not say itself what an engine may have counted: how many prompts it had is not kept, so
 * that it counts as many as it may have had.
 */
const sequencesOf = ({ sequencesMax, inputsMax, textsMax }: SequencesMax): string => `
      sum(case (select name from usage_names where code = r.endpoint)
        when '/v1/chat/completions' then coalesce(r.choices, 1)::bigint
        when '/v1/responses' then 1::bigint
        when '/v1/messages' then 1::bigint
        when '/v1/completions' then greatest(coalesce(r.choices, 1), ${Math.trunc(sequencesMax)})::bigint
        when '/v1/embeddings' then ${Math.trunc(Math.max(inputsMax, textsMax))}::bigint
        else ${Math.trunc(inputsMax)}::bigint end)`;

/** What the unsure ones among records may come to. */
export const unsureColumns = (most: SequencesMax): string => `
      ${sequencesOf(most)} filter (where ${isUnsure} and not ${isReading} and r.prompt_tokens_max is null) as unsure_sequences,
      ${sequencesOf(most)} filter (where ${isUnsure} and ${isReading} and r.prompt_tokens_max is null) as unsure_texts,
      sum(r.prompt_tokens_max) filter (where ${isUnsure}) as unsure_prompt_tokens,
      sum(r.completion_tokens_max) filter (where ${isUnsure}) as unsure_completion_tokens`;

/** Requests of which the engine's last word is not known, and what it may have counted more. */
export interface Unsure {
  readonly unsure: number;
  /** What their records say that it may have counted at most. */
  readonly unsurePromptTokens: number;
  readonly unsureCompletionTokens: number;
  /** Of those whose records do not say it, at most so many prompts with their choices that make tokens, and texts. */
  readonly unsureSequences: number;
  readonly unsureTexts: number;
}

/** Their number, and the columns of `unsureColumns` as text. */
export interface UnsureRow {
  readonly unsure: string;
  readonly unsure_prompt_tokens: string | null;
  readonly unsure_completion_tokens: string | null;
  readonly unsure_sequences: string | null;
  readonly unsure_texts: string | null;
}

export const toUnsure = (row: UnsureRow): Unsure => ({
  unsure: Number(row.unsure),
  unsurePromptTokens: Number(row.unsure_prompt_tokens),
  unsureCompletionTokens: Number(row.unsure_completion_tokens),
  unsureSequences: Number(row.unsure_sequences),
  unsureTexts: Number(row.unsure_texts),
});
