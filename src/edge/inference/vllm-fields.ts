/**
 * Every field that vLLM 0.29 has in its requests, and what becomes of it: decided by what it costs beside what it
 * bills, and by what it reaches beside its own request. A test holds this against the vLLM that is installed; a field
 * that a newer one has must be decided here. Fields that vLLM does not have pass.
 *
 * - `passed`: reaches the engine as it was sent. It costs what it bills, and vLLM checks it where nothing is lost.
 * - `bounded`: as it was sent up to a bound of refused-fields.ts, media-rules.ts or structured-outputs.ts.
 * - `refused`: unless the engine's file allows it; by refused-fields.ts, in parts of messages by media-rules.ts.
 * - `rewritten`: the gateway sets it, or changes what was sent.
 */
export type FieldDecision = 'passed' | 'bounded' | 'refused' | 'rewritten';
export type FieldDecisions = Readonly<Record<string, FieldDecision>>;

/** What all requests have. */
const common = {
  // The engine's own name for it.
  model: 'rewritten',
  // Mixed with the organization's.
  cache_salt: 'rewritten',
  // Reach into the scheduling: other requests wait, or are taken for this one when it is aborted.
  priority: 'refused',
  request_id: 'refused',
  // All text is tokenized before it is cut, and only the rest is billed.
  truncate_prompt_tokens: 'bounded',
  truncation_side: 'passed',
  user: 'passed',
} as const;

/** What makes text. */
const generating = {
  ...common,
  // The output is limited to what the wallet pays for.
  max_tokens: 'rewritten',
  // Usage is asked for, and cut out again where the client did not.
  stream_options: 'rewritten',
  stream: 'passed',
  // Billed as they are made; the hold is made for them.
  n: 'bounded',
  ignore_eos: 'passed',
  min_tokens: 'passed',
  // 15 times what it bills: each beam and each token is a request of its own, of which one is counted.
  use_beam_search: 'refused',
  length_penalty: 'passed',
  // Leave out the prefix cache, and make log probabilities for each token of the prompt: 2 MB of JSON for 1,500 tokens,
  // written while all others wait; in some model runners a tensor of prompt × vocabulary. `echo` does so with logprobs.
  prompt_logprobs: 'refused',
  echo: 'bounded',
  // At most --max-logprobs (20) of them, and 128 named ones: vLLM refuses more before the engine sees it.
  logprobs: 'passed',
  logprob_token_ids: 'passed',
  // 49,000 entries double the time for each token; more than 1,024 end the model runner of GPUs, and the engine.
  logit_bias: 'bounded',
  allowed_token_ids: 'bounded',
  // More than 128 of them with min_tokens end the model runner of GPUs, and the engine.
  stop_token_ids: 'bounded',
  // More than 1,024 tokens do the same; 60 MB of words took the tokenizer 15 seconds from the others.
  bad_words: 'bounded',
  // Kept in 32 bits by the model runner of GPUs, which ends with the engine for a larger one.
  thinking_token_budget: 'bounded',
  // vLLM takes at most four; text is held back for as long as it may become one, and its count with it.
  stop: 'bounded',
  // The scheduler compares after every token, by each size of a pattern: after 16,000 of them it took 12 seconds.
  repetition_detection: 'bounded',
  response_format: 'bounded',
  structured_outputs: 'bounded',
  // Tells the cache to be moved, from and to addresses that the request names.
  kv_transfer_params: 'refused',
  ec_transfer_params: 'refused',
  session_id: 'refused',
  // Plugins make of it what they like; kv_transfer_params come this way as well.
  vllm_xargs: 'refused',
  // Frames come late: the whole answer is held for where they come too late to end it in time.
  stream_interval: 'bounded',
  seed: 'passed',
  temperature: 'passed',
  top_p: 'passed',
  // More than 64 bits is a 500.
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
  // The prompt's own, some bytes a token.
  return_token_ids: 'passed',
  // Has no effect but on routes that are not served here, and in engines that were started for it.
  return_token_offsets: 'passed',
  routed_experts_prompt_start: 'passed',
} as const;

/** How a conversation becomes a prompt. */
const templated = {
  // A program of the client's own.
  chat_template: 'refused',
  // Arguments of the model's template; not another template, which they may hold.
  chat_template_kwargs: 'bounded',
  // Given to the reader of pictures and films as they are: the number of frames, a backend.
  media_io_kwargs: 'refused',
  add_generation_prompt: 'passed',
  continue_final_message: 'passed',
} as const;

const chat = {
  ...generating,
  ...templated,
  // Given to the processor of the model as they are: the size that pictures are scaled to, a device, a dtype.
  mm_processor_kwargs: 'refused',
  // Media in it; 20,000 messages cost nothing worth counting.
  messages: 'bounded',
  max_completion_tokens: 'rewritten',
  top_logprobs: 'passed',
  // Bounded where a grammar is made of them; 2,000 tools without one cost what their prompt bills.
  tools: 'bounded',
  tool_choice: 'passed',
  parallel_tool_calls: 'passed',
  reasoning_effort: 'passed',
  // Hides frames and counts; the whole answer is held for.
  include_reasoning: 'passed',
  // Text of the prompt, billed as such.
  documents: 'passed',
  return_prompt_text: 'passed',
  return_assistant_tokens_mask: 'passed',
} as const;

/** A conversation in items, with an answer in items. */
const responses = {
  model: 'rewritten',
  cache_salt: 'rewritten',
  max_output_tokens: 'rewritten',
  // vLLM never frees what it keeps; it keeps every answer unless it is told not to.
  store: 'rewritten',
  // What it keeps.
  previous_response_id: 'refused',
  background: 'refused',
  // The gateway's own, by which it is aborted; a client's is refused as elsewhere.
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
  // Not those that the engine's own tools answer.
  tools: 'bounded',
  // Its format is a grammar.
  text: 'bounded',
  structured_outputs: 'bounded',
  // Cuts what was tokenized.
  truncation: 'bounded',
  stop: 'bounded',
  logit_bias: 'bounded',
  // Text of the prompt, billed as such.
  instructions: 'passed',
  previous_input_messages: 'passed',
  // vLLM refuses it.
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
  presence_penalty: 'passed',
  frequency_penalty: 'passed',
  repetition_penalty: 'passed',
  // The prompt's own and the answer's, some bytes a token.
  enable_response_messages: 'passed',
} as const;

/** A conversation in Anthropic's form. vLLM passes over what it does not know, `thinking` as well. */
const counted = {
  model: 'rewritten',
  messages: 'bounded',
  tools: 'bounded',
  chat_template_kwargs: 'bounded',
  system: 'passed',
  tool_choice: 'passed',
} as const;

const messages = {
  ...counted,
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

/** Text or messages as tokens: all of the text is tokenized, and nothing is billed. */
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
  // Tensors, which are read by torch.
  prompt_embeds: 'refused',
  suffix: 'passed',
} as const;

/** What reads and makes no text. */
const pooling = {
  ...common,
  mm_processor_kwargs: 'refused',
  // Filled up to the model's length, and billed so.
  padding: 'passed',
  use_activation: 'passed',
} as const;

const embedding = {
  ...pooling,
  ...templated,
  input: 'bounded',
  messages: 'bounded',
  // Not the formats without a count.
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
  // Cut as truncate_prompt_tokens does.
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
  countTokens: counted,
  tokenize,
  detokenize: { model: 'rewritten', tokens: 'passed' },
  embedding,
  rerank: { ...scoring, query: 'bounded', top_n: 'passed' },
  score: { ...scoring, ...compared },
} as const satisfies Record<string, FieldDecisions>;

/** Decisions for the members of objects inside a body, by their place; `[]` stands for each of a list. */
export const nestedFields = {
  stream_options: { include_usage: 'rewritten', continuous_usage_stats: 'rewritten' },
  repetition_detection: { max_pattern_size: 'bounded', min_pattern_size: 'bounded', min_count: 'bounded' },
  structured_outputs: {
    json: 'bounded',
    // One of 19 characters took minutes.
    regex: 'refused',
    choice: 'bounded',
    grammar: 'refused',
    json_object: 'passed',
    structural_tag: 'bounded',
    whitespace_pattern: 'refused',
    disable_any_whitespace: 'passed',
    disable_additional_properties: 'passed',
  },
  response_format: {
    type: 'passed',
    json_schema: 'bounded',
    format: 'bounded',
    structures: 'bounded',
    triggers: 'bounded',
  },
  'response_format.json_schema': { name: 'passed', description: 'passed', schema: 'bounded', strict: 'passed' },
  'response_format.structures[]': { begin: 'bounded', schema: 'bounded', end: 'bounded' },
  'tools[]': { type: 'passed', function: 'bounded', defer_loading: 'passed' },
  'tools[].function': {
    name: 'passed',
    description: 'passed',
    parameters: 'bounded',
    strict: 'passed',
    defer_loading: 'passed',
  },
  tool_choice: { type: 'passed', function: 'passed' },
  'tool_choice.function': { name: 'passed' },
  // Messages of a conversation, and what is compared, which may have a content as well.
  'messages[]': {
    role: 'passed',
    content: 'bounded',
    name: 'passed',
    reasoning: 'passed',
    refusal: 'passed',
    tool_calls: 'passed',
    tool_call_id: 'passed',
    function_call: 'passed',
    // The template reads them; no grammar is built from them.
    tools: 'passed',
    task: 'passed',
    audio: 'passed',
    // OpenAI Harmony's.
    author: 'passed',
    recipient: 'passed',
    channel: 'passed',
    content_type: 'passed',
  },
  'messages[].audio': { id: 'passed' },
  'messages[].author': { role: 'passed', name: 'passed' },
  'messages[].function_call': { name: 'passed', arguments: 'passed' },
  'messages[].tool_calls[]': { id: 'passed', type: 'passed', function: 'passed', custom: 'passed' },
  'messages[].tool_calls[].function': { name: 'passed', arguments: 'passed' },
  'messages[].tool_calls[].custom': { name: 'passed', input: 'passed' },
  'messages[].tools[]': { type: 'passed', function: 'passed' },
  'messages[].tools[].function': { name: 'passed', description: 'passed', parameters: 'passed', strict: 'passed' },
  'messages[].content[]': {
    type: 'passed',
    text: 'passed',
    thinking: 'passed',
    closed: 'passed',
    refusal: 'passed',
    name: 'passed',
    prompt_cache_breakpoint: 'passed',
    // Bounded in number; taken from data: URLs and from hosts that the engine's file names.
    image_url: 'bounded',
    audio_url: 'bounded',
    video_url: 'bounded',
    input_audio: 'bounded',
    file: 'bounded',
    // The name in vLLM's cache, for whoever names it next.
    uuid: 'refused',
    // Tensors, which are read by torch; `data` is that of prompt_embeds.
    image_embeds: 'refused',
    audio_embeds: 'refused',
    video_embeds: 'refused',
    data: 'refused',
    image_pil: 'refused',
  },
  'messages[].content[].image_url': { url: 'bounded', detail: 'passed' },
  'messages[].content[].audio_url': { url: 'bounded' },
  'messages[].content[].video_url': { url: 'bounded' },
  'messages[].content[].input_audio': { data: 'passed', format: 'passed' },
  'messages[].content[].file': { file_data: 'passed', file_id: 'passed', filename: 'passed' },
  'messages[].content[].image_pil': { image_pil: 'refused' },
  'messages[].content[].prompt_cache_breakpoint': { mode: 'passed', ttl: 'passed' },
} as const satisfies Record<string, FieldDecisions>;

/** What older versions have, on any route: `best_of` and `logits_processors` until 0.10, the others until 0.12. */
export const olderVllmFields = {
  best_of: 'refused',
  // Names code of the engine's that is to run.
  logits_processors: 'refused',
  guided_json: 'bounded',
  guided_choice: 'bounded',
  guided_regex: 'bounded',
  guided_whitespace_pattern: 'bounded',
  guided_grammar: 'bounded',
  guided_decoding_backend: 'bounded',
  structural_tag: 'bounded',
} as const satisfies FieldDecisions;
