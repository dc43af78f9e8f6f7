import { type CommandContext, FailedError, textFlag } from '#edge/cli/shell/shell.ts';
import { findProgram } from './code-agents.ts';
import type { ListedModel } from './models.ts';

/** Coding agents that the user has installed, each set up for the key's models without a change of its own files. */

/** Models for an agent. */
export interface AgentSetup {
  /** Address of the gateway. */
  readonly gatewayUrl: string;
  readonly models: readonly ListedModel[];
  readonly model: ListedModel;
}

/** How to run an agent. */
export interface AgentLaunch {
  readonly program: string;
  readonly args: readonly string[];
  /** Variables beside HEADGATE_URL and HEADGATE_API_KEY. */
  readonly environment: Readonly<Record<string, string>>;
}

interface InstalledAgent {
  /** Package of npm. */
  readonly package: string;
  environment(setup: AgentSetup): AgentLaunch['environment'];
  args(context: CommandContext, setup: AgentSetup): readonly string[];
}

export const installedAgents = ['opencode', 'codex', 'claude'] as const;
type AgentName = (typeof installedAgents)[number];

/** Returns the installed agent that --with names; null for pi. */
export function agentOf(context: CommandContext): AgentName | null {
  const name = textFlag(context, 'with');
  return installedAgents.find((one) => one === name) ?? null;
}

export const packageOf = (name: AgentName): string => agents[name].package;

/** @throws FailedError with how to install the agent */
export function launchOf(name: AgentName, context: CommandContext, setup: AgentSetup): AgentLaunch {
  const agent = agents[name];
  const program = findProgram(context.config.environment, name);
  if (program === null) {
    throw new FailedError(
      `${name} is not on the PATH; install it with "npm install --global ${agent.package}", or omit --with to use pi, ` +
        'which is installed on first use',
    );
  }
  return { program, args: agent.args(context, setup), environment: agent.environment(setup) };
}

export const apiUrl = ({ gatewayUrl }: AgentSetup): string => `${gatewayUrl.replace(/\/+$/, '')}/v1`;

const outputMax = 16_384;

/** Returns the longest answer in tokens: a quarter of the model's context. */
export const answerTokens = ({ context_length: length }: ListedModel): number =>
  Math.min(outputMax, Math.floor(length / 4));

export const perMillion = (perToken: string | undefined): number => Number(perToken ?? 0) * 1_000_000;

export const inputsOf = ({ task_type: task }: ListedModel): readonly string[] =>
  task === 'vision' ? ['text', 'image'] : ['text'];

/** Returns the words of the prompt, without the arguments for the agent. */
const askedWords = ({ words, behindDashes }: CommandContext): readonly string[] =>
  words.slice(0, words.length - behindDashes.length);

/** Returns the prompt as one argument that no agent reads as a command or an option of its own. */
function promptOf(context: CommandContext): readonly string[] {
  const asked = askedWords(context);
  return asked.length === 0 ? [] : ['--', asked.join(' ')];
}

const agents: Readonly<Record<AgentName, InstalledAgent>> = {
  opencode: {
    package: 'opencode-ai',
    // Limits opencode to the gateway's models, without checks for updates.
    environment: (setup) => ({
      // opencode reads this after its files, whose other settings stay.
      OPENCODE_CONFIG_CONTENT: JSON.stringify(openCodeConfig(setup)),
      OPENCODE_DISABLE_AUTOUPDATE: '1',
      OPENCODE_DISABLE_MODELS_FETCH: '1',
    }),
    // opencode reads plain words as a folder or a command. The prompt is therefore an option, except with `run`, which
    // answers and ends.
    args(context) {
      const { words, behindDashes, flags, json } = context;
      if (flags['print'] === true) return ['run', ...(json ? ['--format', 'json'] : []), ...words];
      const asked = askedWords(context);
      return [...(asked.length === 0 ? [] : [`--prompt=${asked.join(' ')}`]), ...behindDashes];
    },
  },
  codex: {
    package: '@openai/codex',
    environment: () => ({}),
    args(context, setup) {
      const { behindDashes, flags, json } = context;
      const run = flags['print'] === true ? ['exec', ...(json ? ['--json'] : [])] : [];
      return [...codexConfig(setup), ...run, ...behindDashes, ...promptOf(context)];
    },
  },
  claude: {
    package: '@anthropic-ai/claude-code',
    environment: () => ({}),
    args(context, setup) {
      const { behindDashes, flags, json } = context;
      const run = flags['print'] === true ? ['--print'] : [];
      const form = json ? ['--output-format', 'stream-json', '--verbose'] : [];
      const settings = ['--settings', JSON.stringify(claudeSettings(setup))];
      return [...settings, ...run, ...form, ...behindDashes, ...promptOf(context)];
    },
  },
};

/**
 * Configuration in opencode's format (https://opencode.ai/docs/config). Prices in USD per million tokens, for
 * opencode's own sums.
 */
function openCodeConfig(setup: AgentSetup): object {
  const { models, model } = setup;
  const name = `headgate/${model.id}`;
  return {
    model: name,
    // Small requests beside the work, such as for a title, would otherwise go to another provider's model.
    small_model: name,
    enabled_providers: ['headgate'],
    share: 'disabled',
    provider: {
      headgate: {
        npm: '@ai-sdk/openai-compatible',
        name: 'Headgate',
        options: { baseURL: apiUrl(setup), apiKey: '{env:HEADGATE_API_KEY}' },
        models: Object.fromEntries(models.map((one) => [one.id, openCodeModel(one)])),
      },
    },
  };
}

const openCodeModel = (one: ListedModel): object => ({
  name: one.name ?? one.id,
  limit: { context: one.context_length, output: answerTokens(one) },
  attachment: one.task_type === 'vision',
  modalities: { input: inputsOf(one), output: ['text'] },
  cost: {
    input: perMillion(one.pricing?.prompt),
    output: perMillion(one.pricing?.completion),
    cache_read: perMillion(one.pricing?.input_cache_read),
    cache_write: perMillion(one.pricing?.prompt),
  },
});

/**
 * Options that override the user's config.toml (https://developers.openai.com/codex/config-reference). A JSON string is
 * a string of TOML, too. codex sends web search with each request otherwise, which engines do not have.
 */
function codexConfig(setup: AgentSetup): readonly string[] {
  const { model } = setup;
  const values: Readonly<Record<string, string | number>> = {
    model: model.id,
    model_provider: 'headgate',
    model_context_window: model.context_length,
    'model_providers.headgate.name': 'Headgate',
    'model_providers.headgate.base_url': apiUrl(setup),
    'model_providers.headgate.env_key': 'HEADGATE_API_KEY',
    'model_providers.headgate.wire_api': 'responses',
    web_search: 'disabled',
  };
  return Object.entries(values).flatMap(([key, value]) => ['--config', `${key}=${JSON.stringify(value)}`]);
}

/** Variables with which Claude Code chooses models for its own purposes. */
const claudeModels = [
  'ANTHROPIC_MODEL',
  'ANTHROPIC_SMALL_FAST_MODEL',
  'ANTHROPIC_DEFAULT_OPUS_MODEL',
  'ANTHROPIC_DEFAULT_SONNET_MODEL',
  'ANTHROPIC_DEFAULT_HAIKU_MODEL',
  'ANTHROPIC_DEFAULT_FABLE_MODEL',
  'CLAUDE_CODE_SUBAGENT_MODEL',
];

/** Variables with which Claude Code takes another server or another key. */
const otherServers = [
  'ANTHROPIC_AUTH_TOKEN',
  'ANTHROPIC_API_KEY',
  'ANTHROPIC_CUSTOM_HEADERS',
  'CLAUDE_CODE_USE_BEDROCK',
  'CLAUDE_CODE_USE_VERTEX',
  'CLAUDE_CODE_USE_FOUNDRY',
  'CLAUDE_CODE_USE_MANTLE',
  'CLAUDE_CODE_USE_GATEWAY',
  'CLAUDE_CODE_USE_ANTHROPIC_AWS',
  'CLAUDE_CODE_USE_ANTHROPIC_GOOGLE_CLOUD',
];

/**
 * Settings of Claude Code (https://code.claude.com/docs/en/settings): the gateway's address, key and model. Their `env`
 * takes precedence over the user's environment and over the `env` of the user's settings.json.
 */
function claudeSettings({ gatewayUrl, model }: AgentSetup): object {
  return {
    model: model.id,
    // The key is in the environment only; other users can read arguments.
    apiKeyHelper: 'printenv HEADGATE_API_KEY',
    env: {
      ...Object.fromEntries(otherServers.map((name) => [name, ''])),
      ...Object.fromEntries(claudeModels.map((name) => [name, model.id])),
      ANTHROPIC_BASE_URL: gatewayUrl.replace(/\/+$/, ''),
      CLAUDE_CODE_MAX_CONTEXT_TOKENS: String(model.context_length),
      CLAUDE_CODE_MAX_OUTPUT_TOKENS: String(answerTokens(model)),
      // Stops telemetry, checks for updates and the like.
      CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: '1',
    },
  };
}
