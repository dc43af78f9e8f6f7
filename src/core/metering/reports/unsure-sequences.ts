/** Maximum sizes of a request, by the settings. */
export interface SequencesMax {
  /** Maximum of prompts times choices of `/v1/completions`. */
  readonly sequencesMax: number;
  /** Maximum number of documents of the other endpoints, which generate no tokens. */
  readonly inputsMax: number;
  /** Maximum number of texts of `/v1/embeddings`, if larger than `inputsMax`. */
  readonly textsMax: number;
}

const listed = (names: readonly string[]): string => names.map((name) => `'${name}'`).join(', ');

/** Endpoints that a tokenizer answers: no engine counts anything for their requests, however they end. */
export const uncountedEndpoints = [
  '/v1/messages/count_tokens',
  '/v1/responses/input_tokens',
  '/v1/tokenize',
  '/v1/detokenize',
] as const;

/**
 * SQL condition that is true if the engine's last count of a record `r` is unknown: it may have counted more than the
 * record has. An engine did not start a request that it rejected, or whose endpoint it does not have (501).
 */
export const isUnsure = `(r.usage_source <> 'engine' and not r.cache_hit
      and (r.status < 400 or r.status >= 499 and r.status <> 501)
      and r.endpoint not in (select code from usage_names
        where name in (${listed(uncountedEndpoints)})))`;

/** Endpoints whose requests generate no tokens. */
const readingEndpoints = ['/v1/embeddings', '/v1/rerank', '/v1/score'];

/** SQL condition that is true if a record `r` is of a request that generates no tokens. */
const isReading = `(r.endpoint in (select code from usage_names where name in (${listed(readingEndpoints)})))`;

/**
 * SQL for the sequences of unsure records that do not say what an engine may have counted. The number of prompts is not
 * stored, so each record counts its possible maximum.
 */
const sequencesOf = ({ sequencesMax, inputsMax, textsMax }: SequencesMax): string => `
      sum(case (select name from usage_names where code = r.endpoint)
        when '/v1/chat/completions' then coalesce(r.choices, 1)::bigint
        when '/v1/responses' then 1::bigint
        when '/v1/messages' then 1::bigint
        when '/v1/completions' then greatest(coalesce(r.choices, 1), ${Math.trunc(sequencesMax)})::bigint
        when '/v1/embeddings' then ${Math.trunc(Math.max(inputsMax, textsMax))}::bigint
        else ${Math.trunc(inputsMax)}::bigint end)`;

/** SQL columns for the possible counts of unsure records. */
export const unsureColumns = (most: SequencesMax): string => `
      ${sequencesOf(most)} filter (where ${isUnsure} and not ${isReading} and r.prompt_tokens_max is null) as unsure_sequences,
      ${sequencesOf(most)} filter (where ${isUnsure} and ${isReading} and r.prompt_tokens_max is null) as unsure_texts,
      sum(r.prompt_tokens_max) filter (where ${isUnsure}) as unsure_prompt_tokens,
      sum(r.completion_tokens_max) filter (where ${isUnsure}) as unsure_completion_tokens`;

/** Requests whose last engine count is unknown, and the tokens that the engine may have counted. */
export interface Unsure {
  readonly unsure: number;
  /** Most tokens that the engine may have counted, according to the records. */
  readonly unsurePromptTokens: number;
  readonly unsureCompletionTokens: number;
  /** For records without these maximums: most prompts with choices that generate tokens, and most texts. */
  readonly unsureSequences: number;
  readonly unsureTexts: number;
}

/** Number of unsure records, and the columns of `unsureColumns` as text. */
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
