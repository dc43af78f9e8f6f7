/** Cases that a client may have, in the order of the table. */
export const caseNames = [
  'models',
  'chat',
  'chat stream',
  'tools',
  'object',
  'embeddings',
  'responses',
  'responses stream',
  'messages',
  'messages stream',
  'wrong key',
] as const;
export type CaseName = (typeof caseNames)[number];

export interface Client {
  readonly registry: 'npm' | 'PyPI';
  /** Subfolder with the installed packages. Clients of one subfolder have the same packages. */
  readonly folder: string;
  /** Packages whose versions the table shows. */
  readonly shown: readonly string[];
  /** Packages that the script needs besides. */
  readonly besides?: readonly string[];
  /** File in `scripts/`, which prints a line of JSON for each case. */
  readonly script: string;
  readonly cases: readonly CaseName[];
}

const openaiChat = ['chat', 'chat stream', 'tools', 'object'] as const;
const responses = ['responses', 'responses stream'] as const;
const messages = ['messages', 'messages stream'] as const;
const openaiAll = [...openaiChat, 'embeddings', ...responses, 'wrong key'] as const;
const anthropicAll = ['models', 'tools', 'object', ...messages, 'wrong key'] as const;
const agents = [...openaiChat, ...responses, 'wrong key'] as const;

const aiSdk = {
  registry: 'npm',
  folder: 'ai-sdk',
  besides: ['ai', 'zod', '@ai-sdk/openai', '@ai-sdk/openai-compatible', '@ai-sdk/anthropic'],
} as const;

/** All clients of the table, each by its newest version. */
export const clients: readonly Client[] = [
  {
    registry: 'npm',
    folder: 'openai',
    shown: ['openai'],
    script: 'openai.js',
    cases: ['models', ...openaiAll],
  },
  { ...aiSdk, shown: ['ai', '@ai-sdk/openai'], script: 'ai-sdk-openai.js', cases: openaiAll },
  {
    ...aiSdk,
    shown: ['ai', '@ai-sdk/openai-compatible'],
    script: 'ai-sdk-compatible.js',
    cases: [...openaiChat, 'embeddings', 'wrong key'],
  },
  {
    ...aiSdk,
    shown: ['ai', '@ai-sdk/anthropic'],
    script: 'ai-sdk-anthropic.js',
    cases: ['tools', 'object', ...messages, 'wrong key'],
  },
  { registry: 'npm', folder: 'anthropic', shown: ['@anthropic-ai/sdk'], script: 'anthropic.js', cases: anthropicAll },
  {
    registry: 'npm',
    folder: 'langchain-openai',
    shown: ['@langchain/openai', '@langchain/core'],
    besides: ['zod'],
    script: 'langchain-openai.js',
    cases: openaiAll,
  },
  {
    registry: 'npm',
    folder: 'langchain-anthropic',
    shown: ['@langchain/anthropic', '@langchain/core'],
    script: 'langchain-anthropic.js',
    cases: [...messages, 'wrong key'],
  },
  {
    registry: 'npm',
    folder: 'llamaindex',
    shown: ['llamaindex', '@llamaindex/openai'],
    besides: ['zod'],
    script: 'llamaindex.js',
    cases: openaiAll,
  },
  {
    registry: 'npm',
    folder: 'agents',
    shown: ['@openai/agents'],
    besides: ['zod'],
    script: 'agents.js',
    cases: agents,
  },
  {
    registry: 'npm',
    folder: 'codex',
    shown: ['@openai/codex'],
    script: 'codex.js',
    cases: ['responses stream', 'wrong key'],
  },
  {
    registry: 'npm',
    folder: 'claude-code',
    shown: ['@anthropic-ai/claude-code'],
    script: 'claude-code.js',
    cases: ['messages stream', 'wrong key'],
  },
  {
    registry: 'PyPI',
    folder: 'openai-python',
    shown: ['openai'],
    script: 'openai_python.py',
    cases: ['models', ...openaiAll],
  },
  {
    registry: 'PyPI',
    folder: 'anthropic-python',
    shown: ['anthropic'],
    script: 'anthropic_python.py',
    cases: anthropicAll,
  },
  {
    registry: 'PyPI',
    folder: 'langchain-python',
    shown: ['langchain-openai'],
    script: 'langchain_python.py',
    cases: openaiAll,
  },
  {
    registry: 'PyPI',
    folder: 'llamaindex-python',
    shown: ['llama-index-llms-openai-like'],
    besides: ['llama-index-embeddings-openai-like'],
    script: 'llamaindex_python.py',
    cases: openaiAll,
  },
  {
    registry: 'PyPI',
    folder: 'agents-python',
    shown: ['openai-agents'],
    script: 'agents_python.py',
    cases: agents,
  },
];
