import { type ChildProcess, spawn } from 'node:child_process';
import {
  type Command,
  type CommandContext,
  exitCodes,
  FailedError,
  jsonText,
  keyOf,
  textFlag,
  UsageError,
} from '#edge/cli/shell/shell.ts';
import { createAgentHome, installPi, pi } from './code-agents.ts';
import {
  agentOf,
  type AgentSetup,
  answerTokens,
  apiUrl,
  inputsOf,
  installedAgents,
  launchOf,
  packageOf,
  perMillion,
} from './installed-agents.ts';
import { type ListedModel, readModels } from './models.ts';

/** `headgate code`: runs a coding agent on a model of the gateway, in the current folder. */

async function code(context: CommandContext): Promise<number> {
  const { config, words } = context;
  checkFlags(context);
  const apiKey = keyOf(config);
  const models = (await readModels(context.api)).filter(({ task_type: task }) => codeTasks.includes(task));
  const model = chooseModel(context, models);
  const setup = { gatewayUrl: config.url, models, model };
  // The key is passed in the environment: no file of an agent holds the key.
  const environment = { ...config.environment, HEADGATE_URL: config.url, HEADGATE_API_KEY: apiKey };
  const agent = agentOf(context);
  if (agent !== null) {
    const { program, args, environment: own } = launchOf(agent, context, setup);
    warnOfShortContext(context, model);
    return follow(spawn(program, args, { stdio: 'inherit', env: { ...environment, ...own } }));
  }
  const home = createAgentHome(context.config);
  const program = await installPi(context, home);
  if (context.flags['install-only'] === true) {
    context.out(
      context.json ? jsonText({ object: 'agent', name: pi.name, version: pi.version, program }) : `${program}\n`,
    );
    return exitCodes.ok;
  }
  home.writeModels(piModels(setup));
  const settings = {
    PI_CODING_AGENT_DIR: home.settingsDir,
    // Stops pi from calling any server except the gateway.
    PI_OFFLINE: '1',
    PI_SKIP_VERSION_CHECK: '1',
    PI_TELEMETRY: '0',
  };
  const args = [program, '--provider', 'headgate', '--model', model.id, ...printFlags(context), ...words];
  return follow(spawn(process.execPath, args, { stdio: 'inherit', env: { ...environment, ...settings } }));
}

/** Agents send thousands of tokens of instructions and tools with each request, and then what they have read. */
const contextMin = 32_768;

function warnOfShortContext({ err }: CommandContext, { id, context_length: length }: ListedModel): void {
  if (length >= contextMin) return;
  err(
    `${id} has a context of ${length} tokens. Agents usually need ${contextMin} or more: choose another of "headgate models" with -m.\n`,
  );
}

const printFlags = ({ flags, json }: CommandContext): readonly string[] => [
  ...(flags['print'] === true ? ['--print'] : []),
  ...(json ? ['--mode', 'json'] : []),
];

/**
 * Rejects --json without --print: an agent's terminal output is not JSON. All agents have a mode for scripts. @throws
 * UsageError
 */
function checkFlags(context: CommandContext): void {
  const { json, flags } = context;
  const installsOnly = flags['install-only'] === true;
  const agent = agentOf(context);
  if (installsOnly && agent !== null) {
    throw new UsageError(
      `--install-only installs pi, not ${agent}; omit --with, or install ${agent} with "npm install --global ${packageOf(agent)}"`,
    );
  }
  if (!json || installsOnly || flags['print'] === true) return;
  throw new UsageError(
    '--json requires --print, with which the agent prints one line of JSON per event, or --install-only',
  );
}

const codeTasks = ['code', 'chat', 'vision'];

/**
 * Returns the named model, otherwise the best for code: first a model with enough context, then a code model before any
 * chat model. @throws UsageError, FailedError
 */
function chooseModel(context: CommandContext, models: readonly ListedModel[]): ListedModel {
  const named = textFlag(context, 'model');
  if (named === null) {
    const isLong = ({ context_length: length }: ListedModel): boolean => length >= contextMin;
    const [first] = models.toSorted(
      (a, b) =>
        Number(isLong(b)) - Number(isLong(a)) || codeTasks.indexOf(a.task_type) - codeTasks.indexOf(b.task_type),
    );
    if (first !== undefined) return first;
    throw new FailedError('this key has no chat model; "headgate models" lists its models');
  }
  const found = models.find(({ id }) => id.toLowerCase() === named.toLowerCase());
  if (found !== undefined) return found;
  throw new UsageError(
    `there is no chat model ${JSON.stringify(named)}; use one of ${models.map(({ id }) => id).join(', ')}`,
  );
}

/**
 * Models in pi's format (https://github.com/earendil-works/pi, docs/models.md). Prices in USD per million tokens, for
 * pi's own sums.
 */
function piModels(setup: AgentSetup): object {
  return {
    providers: {
      headgate: {
        baseUrl: apiUrl(setup),
        api: 'openai-completions',
        apiKey: '$HEADGATE_API_KEY',
        models: setup.models.map((one) => ({
          id: one.id,
          name: one.name ?? one.id,
          contextWindow: one.context_length,
          maxTokens: answerTokens(one),
          input: inputsOf(one),
          cost: {
            input: perMillion(one.pricing?.prompt),
            output: perMillion(one.pricing?.completion),
            cacheRead: perMillion(one.pricing?.input_cache_read),
            cacheWrite: perMillion(one.pricing?.prompt),
          },
          // Fields and roles of OpenAI's that vLLM does not know.
          compat: { supportsStore: false, supportsDeveloperRole: false, supportsReasoningEffort: false },
        })),
      },
    },
  };
}

/**
 * Returns the exit code for an agent. Programs that catch Ctrl-C exit with the number that shells give to programs
 * killed by SIGINT.
 */
function exitCodeOf(status: number | null, signal: NodeJS.Signals | null): number {
  if (status === 0) return exitCodes.ok;
  return signal === 'SIGINT' || status === exitCodes.interrupted ? exitCodes.interrupted : exitCodes.failed;
}

/** Waits until the agent ends. A terminal sends Ctrl-C to both processes: the agent decides what Ctrl-C means. */
function follow(child: ChildProcess): Promise<number> {
  const ignore = (): void => {};
  const end = (): void => void child.kill('SIGTERM');
  process.on('SIGINT', ignore);
  process.on('SIGTERM', end);
  return new Promise((resolve, reject) => {
    child.on('error', (error) => reject(new FailedError(`the agent cannot be started (${error.message})`)));
    child.on('exit', (status, signal) => resolve(exitCodeOf(status, signal)));
  }).finally(() => {
    process.off('SIGINT', ignore);
    process.off('SIGTERM', end);
  }) as Promise<number>;
}

export const codeCommand: Command = {
  name: 'code',
  usage: '[-m MODEL] [-p] [--with pi|opencode|codex|claude] [WORDS…] [-- ARGUMENTS…]',
  summary:
    'Start a coding agent in this folder, on a model of the gateway: pi, which is installed on first use, or ' +
    'opencode, codex or Claude Code, if it is installed. Arguments after -- go to the agent.',
  words: { min: 0, max: 10_000 },
  options: {
    model: {
      type: 'string',
      short: 'm',
      names: 'models',
      about: 'default: a model with enough context, of task_type code before chat',
    },
    with: { type: 'string', choices: ['pi', ...installedAgents], about: 'default: pi' },
    print: { type: 'boolean', short: 'p', about: 'do one task and end' },
    'install-only': { type: 'boolean', about: 'install pi, and print its path' },
  },
  run: code,
};
