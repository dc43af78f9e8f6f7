/** What a request may hold, by the settings. */
export interface SequencesMax {
  /** Prompts times choices of `/v1/completions`. */
  readonly sequencesMax: number;
  /** Texts or documents of the others that make no tokens. */
  readonly inputsMax: number;
}

/** Of an unsure record: how many prompts it had is not kept, so that it counts as many as it may have had. */
export const sequencesOf = ({ sequencesMax, inputsMax }: SequencesMax): string => `
      sum(case (select name from usage_names where code = r.endpoint)
        when '/v1/chat/completions' then coalesce(r.choices, 1)::bigint
        when '/v1/responses' then 1::bigint
        when '/v1/messages' then 1::bigint
        when '/v1/completions' then greatest(coalesce(r.choices, 1), ${Math.trunc(sequencesMax)})::bigint
        else ${Math.trunc(inputsMax)}::bigint end)`;
