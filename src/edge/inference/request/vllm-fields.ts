/**
 * Every field of the requests of the vLLM versions that were tried, with a decision: by what the field costs beyond its
 * bill, and by what it reaches beyond its own request. A test compares this list with the installed vLLM, so a field of a
 * newer version must be decided here. Fields that vLLM does not have pass.
 *
 * - `passed`: reaches the engine as sent. It costs what it bills, and vLLM checks it where nothing is lost.
 * - `bounded`: as sent, up to a bound in refused-fields.ts or structured-outputs.ts.
 * - `refused`: unless the engine's file allows it; by refused-fields.ts, also in parts of messages.
 * - `rewritten`: the gateway sets or changes the field.
 */
export type FieldDecision = 'passed' | 'bounded' | 'refused' | 'rewritten';
export type FieldDecisions = Readonly<Record<string, FieldDecision>>;

/** Fields of all requests. */
const common = {
  // Replaced by the engine's own name.
  model: 'rewritten',
  // Mixed with the organization's salt.
  cache_salt: 'rewritten',
  // Reach into the scheduling: other requests wait, or are mistaken for this one when it is aborted.
  priority: 'refused',
  request_id: 'refused',
  // All text is tokenized before it is cut, and only the rest is billed.
  truncate_prompt_tokens: 'bounded',
  truncation_side: 'passed',
  user: 'passed',
} as const;

/** Fields since 0.32, without an effect on routes that are served here, or in engines that were not started for them. */
const inert = { mm_payload: 'passed', return_mm_kwargs: 'passed', watermarking: 'passed' } as const;

/** Fields of requests that generate text. */
const generating = {
  ...common,
  // The output is limited to what the wallet pays for.
  max_tokens: 'rewritten',
  // Usage is requested, and cut out again if the client did not ask for it.
  stream_options: 'rewritten',
  stream: 'passed',
  // Billed as generated, and covered by the hold.
  n: 'bounded',
  ignore_eos: 'passed',
  min_tokens: 'passed',
  // Costs 15 times what it bills: each beam and each token is a separate request, and only one is counted.
  use_beam_search: 'refused',
  length_penalty: 'passed',
  // Skip the prefix cache, and make log probabilities for each token of the prompt: 2 MB of JSON for 1,500 tokens,
  // written while all others wait; in some model runners a tensor of prompt × vocabulary. So does `echo` with logprobs.
  prompt_logprobs: 'refused',
  echo: 'bounded',
  // At most --max-logprobs (20) of them, and 128 named ones: vLLM rejects more before the engine sees the request.
  logprobs: 'passed',
  logprob_token_ids: 'passed',
  // 49,000 entries double the time per token; more than 1,024 crash the model runner of GPUs, and the engine.
  logit_bias: 'bounded',
  allowed_token_ids: 'bounded',
  // More than 128 of them with min_tokens crash the model runner of GPUs, and the engine.
  stop_token_ids: 'bounded',
  // More than 1,024 tokens crash it too; 60 MB of words kept the tokenizer from other requests for 15 seconds.
  bad_words: 'bounded',
  // The model runner of GPUs keeps it in 32 bits. A larger value crashes the runner and the engine.
  thinking_token_budget: 'bounded',
  // vLLM accepts at most four. Text that may become a stop string is held back, and its count too.
  stop: 'bounded',
  // After every token, the scheduler compares by each size of a pattern: after 16,000 of them this took 12 seconds.
  repetition_detection: 'bounded',
  response_format: 'bounded',
  structured_outputs: 'bounded',
  // Make the engine move its cache, from and to addresses that the request names.
  kv_transfer_params: 'refused',
  ec_transfer_params: 'refused',
  session_id: 'refused',
  // Plugins interpret it freely; kv_transfer_params can be sent in it as well.
  vllm_xargs: 'refused',
  // Frames come late. If they come too late to end the answer in time, the hold covers the whole answer.
  stream_interval: 'bounded',
  seed: 'passed',
  temperature: 'passed',
  top_p: 'passed',
  // vLLM answers 500 to more than 64 bits.
  top_k: 'bounded',
  min_p: 'passed',
  presence_penalty: 'passed',
  frequency_penalty: 'passed',
  repetition_penalty: 'passed',
  include_stop_str_in_output: 'passed',
  skip_special_tokens: 'passed',
  spaces_between_special_tokens: 'passed',
  add_special_tokens: 'passed',
  return_tokens_as_token_ids: 'passed',
  // Returns the prompt's ids too, some bytes per token.
  return_token_ids: 'passed',
  // Have no effect, except on routes that are not served here and in engines that were started for it.
  return_token_offsets: 'passed',
  routed_experts_prompt_start: 'passed',
  ...inert,
} as const;

/** Fields that make a prompt of a conversation. */
const templated = {
  // A program written by the client.
  chat_template: 'refused',
  // Arguments of the model's template. Another template, which they may contain, is not allowed.
  chat_template_kwargs: 'bounded',
  // Passed unchanged to the reader of pictures and video: the number of frames, a backend.
  media_io_kwargs: 'refused',
  add_generation_prompt: 'passed',
  continue_final_message: 'passed',
} as const;

const chat = {
  ...generating,
  ...templated,
  // Passed unchanged to the model's processor: the size that pictures are scaled to, a device, a dtype.
  mm_processor_kwargs: 'refused',
  // May contain media; 20,000 messages cost nothing worth counting.
  messages: 'bounded',
  max_completion_tokens: 'rewritten',
  top_logprobs: 'passed',
  // Bounded if a grammar is made of them; 2,000 tools without a grammar cost what their prompt bills.
  tools: 'bounded',
  tool_choice: 'passed',
  parallel_tool_calls: 'passed',
  reasoning_effort: 'passed',
  // Hides frames and counts, so the hold covers the whole answer.
  include_reasoning: 'passed',
  // Text of the prompt, and billed as such.
  documents: 'passed',
  return_prompt_text: 'passed',
  return_assistant_tokens_mask: 'passed',
} as const;

/** A conversation in items, with an answer in items. */
const responses = {
  model: 'rewritten',
  cache_salt: 'rewritten',
  max_output_tokens: 'rewritten',
  // The gateway stores responses. vLLM would never free them, and give them to anyone who knows their id.
  store: 'rewritten',
  // Replaced by the items of the stored conversation.
  previous_response_id: 'rewritten',
  background: 'bounded',
  // Set by the gateway, which aborts by this id. A client's value is rejected as elsewhere.
  request_id: 'rewritten',
  priority: 'refused',
  session_id: 'refused',
  kv_transfer_params: 'refused',
  ec_transfer_params: 'refused',
  vllm_xargs: 'refused',
  media_io_kwargs: 'refused',
  mm_processor_kwargs: 'refused',
  chat_template_kwargs: 'bounded',
  input: 'bounded',
  // Tools that the engine runs itself are rejected.
  tools: 'bounded',
  // Its format is a grammar.
  text: 'bounded',
  structured_outputs: 'bounded',
  // Cuts text after it was tokenized.
  truncation: 'bounded',
  stop: 'bounded',
  stop_token_ids: 'bounded',
  logit_bias: 'bounded',
  // Text of the prompt, and billed as such.
  instructions: 'passed',
  previous_input_messages: 'passed',
  // vLLM rejects it.
  prompt: 'passed',
  stream: 'passed',
  user: 'passed',
  metadata: 'passed',
  service_tier: 'passed',
  prompt_cache_key: 'passed',
  include: 'passed',
  include_reasoning: 'passed',
  reasoning: 'passed',
  max_tool_calls: 'passed',
  parallel_tool_calls: 'passed',
  tool_choice: 'passed',
  top_logprobs: 'passed',
  ignore_eos: 'passed',
  include_stop_str_in_output: 'passed',
  skip_special_tokens: 'passed',
  seed: 'passed',
  temperature: 'passed',
  top_p: 'passed',
  top_k: 'bounded',
  min_p: 'passed',
  ...inert,
  presence_penalty: 'passed',
  frequency_penalty: 'passed',
  repetition_penalty: 'passed',
  // Returns the messages of the prompt and of the answer, some bytes per token.
  enable_response_messages: 'passed',
} as const;

/** The fields of a response, for the number of its input tokens: nothing is stored, cached or generated. */
const { cache_salt: _salt, store: _store, request_id: _id, max_output_tokens: _max, ...ofPrompt } = responses;
const inputTokens = {
  ...ofPrompt,
  store: 'passed',
  request_id: 'refused',
  max_output_tokens: 'passed',
  // The text of free requests is bounded anyway.
  truncation: 'passed',
} as const;

/** A conversation in Anthropic's form. vLLM ignores unknown fields. */
const counted = {
  model: 'rewritten',
  messages: 'bounded',
  tools: 'bounded',
  chat_template_kwargs: 'bounded',
  system: 'passed',
  tool_choice: 'passed',
  // Since 0.32. Thoughts are output tokens, within max_tokens.
  thinking: 'passed',
} as const;

const messages = {
  ...counted,
  ...inert,
  cache_salt: 'rewritten',
  max_tokens: 'rewritten',
  // Its format is a grammar.
  output_config: 'bounded',
  stop_sequences: 'bounded',
  kv_transfer_params: 'refused',
  ec_transfer_params: 'refused',
  vllm_xargs: 'refused',
  metadata: 'passed',
  stream: 'passed',
  temperature: 'passed',
  top_p: 'passed',
  top_k: 'bounded',
} as const;

/** Text or messages to be turned into tokens: all of the text is tokenized, and nothing is billed. */
const tokenize = {
  ...templated,
  model: 'rewritten',
  mm_processor_kwargs: 'refused',
  prompt: 'bounded',
  messages: 'bounded',
  // Text of the prompt: no grammar is built from them.
  tools: 'passed',
  add_special_tokens: 'passed',
  return_token_strs: 'passed',
} as const;

const completion = {
  ...generating,
  prompt: 'bounded',
  // Tensors, which torch reads.
  prompt_embeds: 'refused',
  suffix: 'passed',
} as const;

/** Fields of requests that read input and generate no text. */
const pooling = {
  ...common,
  mm_processor_kwargs: 'refused',
  // Fills texts up to the model's length, and is billed so.
  padding: 'passed',
  use_activation: 'passed',
} as const;

const embedding = {
  ...pooling,
  ...templated,
  input: 'bounded',
  messages: 'bounded',
  // Formats without a count are rejected.
  encoding_format: 'bounded',
  dimensions: 'passed',
  embed_dtype: 'passed',
  endianness: 'passed',
  add_special_tokens: 'passed',
} as const;

const scoring = {
  ...pooling,
  chat_template_kwargs: 'bounded',
  instruction: 'passed',
  documents: 'bounded',
  // Cut texts as truncate_prompt_tokens does.
  max_tokens_per_doc: 'bounded',
  max_tokens_per_query: 'bounded',
} as const;

const compared = {
  queries: 'bounded',
  items: 'bounded',
  data_1: 'bounded',
  data_2: 'bounded',
  text_1: 'bounded',
  text_2: 'bounded',
} as const;

/** Decisions for the members of a body, by kind of request. */
export const requestFields = {
  chat,
  completion,
  responses,
  messages,
  // No grammar is built to count tokens.
  countTokens: { ...counted, output_config: 'passed' },
  inputTokens,
  tokenize,
  detokenize: { model: 'rewritten', tokens: 'passed' },
  embedding,
  rerank: { ...scoring, query: 'bounded', top_n: 'passed' },
  score: { ...scoring, ...compared },
} as const satisfies Record<string, FieldDecisions>;

/** Fields of versions until 0.10, on any route. */
export const olderVllmFields = {
  best_of: 'refused',
  // Names code of the engine to be run.
  logits_processors: 'refused',
} as const satisfies FieldDecisions;

/**
 * Fields of versions until 0.12, on any route, with their names since then. vLLM ignores the old names and answers 200:
 * clients would pay for text without the form that they asked for.
 */
export const renamedFields: Readonly<Record<string, string | null>> = {
  guided_json: 'structured_outputs.json',
  guided_choice: 'structured_outputs.choice',
  guided_regex: 'structured_outputs.regex',
  guided_whitespace_pattern: 'structured_outputs.whitespace_pattern',
  guided_grammar: 'structured_outputs.grammar',
  guided_decoding_backend: null,
  structural_tag: 'structured_outputs.structural_tag',
};
