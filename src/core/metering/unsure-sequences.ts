/** What a request may hold, by the settings. */
export interface SequencesMax {
  /** Prompts times choices of `/v1/completions`. */
  readonly sequencesMax: number;
  /** Documents of the others, that make no tokens. */
  readonly inputsMax: number;
  /** Texts of `/v1/embeddings`, where they are more. */
  readonly textsMax: number;
}

/** Routes that a tokenizer answers: no engine counts anything of their requests, however they end. */
export const uncountedEndpoints = ['/v1/messages/count_tokens', '/v1/tokenize', '/v1/detokenize'] as const;

/** Whether an engine's last word on a record `r` is not known: it may have counted more than the record has. */
export const isUnsure = `(r.usage_source <> 'engine' and not r.cache_hit and (r.status < 400 or r.status >= 499)
      and r.endpoint not in (select code from usage_names
        where name in (${uncountedEndpoints.map((path) => `'${path}'`).join(', ')})))`;

/** Of an unsure record: how many prompts it had is not kept, so that it counts as many as it may have had. */
export const sequencesOf = ({ sequencesMax, inputsMax, textsMax }: SequencesMax): string => `
      sum(case (select name from usage_names where code = r.endpoint)
        when '/v1/chat/completions' then coalesce(r.choices, 1)::bigint
        when '/v1/responses' then 1::bigint
        when '/v1/messages' then 1::bigint
        when '/v1/completions' then greatest(coalesce(r.choices, 1), ${Math.trunc(sequencesMax)})::bigint
        when '/v1/embeddings' then ${Math.trunc(Math.max(inputsMax, textsMax))}::bigint
        else ${Math.trunc(inputsMax)}::bigint end)`;
