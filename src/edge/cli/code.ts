import { type ChildProcess, spawn } from 'node:child_process';
import { jsonText } from './answers.ts';
import { createAgentHome, findProgram, installPi, pi } from './code-agents.ts';
import { keyOf } from './api-client.ts';
import { type Command, type CommandContext, exitCodes, textFlag } from './command.ts';
import { FailedError, UsageError } from './errors.ts';
import { type ListedModel, readModels } from './models.ts';

/** `headgate code`: a coding agent on a model of the gateway, in the folder that it is called in. */

async function code(context: CommandContext): Promise<number> {
  const { config, words } = context;
  checkJson(context);
  const apiKey = keyOf(config);
  const models = (await readModels(context.api)).filter(({ task_type: task }) => codeTasks.includes(task));
  const model = chooseModel(context, models);
  const home = createAgentHome(context.config);
  const agent = textFlag(context, 'with') ?? 'pi';
  const setup = { url: `${config.url.replace(/\/+$/, '')}/v1`, models, model };
  // The key goes by the environment: no file of an agent holds it.
  const environment = { ...config.environment, HEADGATE_URL: config.url, HEADGATE_API_KEY: apiKey };
  if (agent === 'opencode') {
    const program = findProgram(config.environment, 'opencode');
    if (program === null) {
      const how = 'install it as https://opencode.ai says, or leave --with out: pi is installed on first use';
      throw new FailedError(`there is no program opencode on this machine: ${how}`);
    }
    const settings = { OPENCODE_CONFIG_CONTENT: JSON.stringify(openCodeConfig(setup)) };
    return follow(spawn(program, [...words], { stdio: 'inherit', env: { ...environment, ...settings } }));
  }
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
    // It asks nobody but the gateway.
    PI_OFFLINE: '1',
    PI_SKIP_VERSION_CHECK: '1',
    PI_TELEMETRY: '0',
  };
  const args = [program, '--provider', 'headgate', '--model', model.id, ...printFlags(context), ...words];
  return follow(spawn(process.execPath, args, { stdio: 'inherit', env: { ...environment, ...settings } }));
}

const printFlags = ({ flags, json }: CommandContext): readonly string[] => [
  ...(flags['print'] === true ? ['--print'] : []),
  ...(json ? ['--mode', 'json'] : []),
];

/** What an agent shows on a terminal is no JSON; pi has a mode for scripts. @throws UsageError */
function checkJson({ json, flags }: CommandContext): void {
  if (!json || flags['install-only'] === true) return;
  if (flags['print'] === true && flags['with'] !== 'opencode') return;
  throw new UsageError(
    '--json goes with --print of pi, which then prints a line of JSON for each event, or --install-only',
  );
}

const codeTasks = ['code', 'chat', 'vision'];

/** The one that was named, else one for code, rather than any that chats. @throws UsageError, FailedError */
function chooseModel(context: CommandContext, models: readonly ListedModel[]): ListedModel {
  const named = textFlag(context, 'model');
  if (named === null) {
    const [first] = models.toSorted((a, b) => codeTasks.indexOf(a.task_type) - codeTasks.indexOf(b.task_type));
    if (first !== undefined) return first;
    throw new FailedError('no model of this key can chat; "headgate models" lists what it may use');
  }
  const found = models.find(({ id }) => id.toLowerCase() === named.toLowerCase());
  if (found !== undefined) return found;
  throw new UsageError(
    `there is no model ${JSON.stringify(named)} that chats: ${models.map(({ id }) => id).join(', ')}`,
  );
}

interface Setup {
  /** With /v1. */
  readonly url: string;
  readonly models: readonly ListedModel[];
  readonly model: ListedModel;
}

const outputMax = 16_384;

/** An answer may take a quarter of what the model reads. */
const answerTokens = ({ context_length: length }: ListedModel): number => Math.min(outputMax, Math.floor(length / 4));

/** https://github.com/earendil-works/pi, docs/models.md: prices in USD per million tokens, for its own sums. */
function piModels({ url, models }: Setup): object {
  const perMillion = (perToken: string | undefined): number => Number(perToken ?? 0) * 1_000_000;
  return {
    providers: {
      headgate: {
        baseUrl: url,
        api: 'openai-completions',
        apiKey: '$HEADGATE_API_KEY',
        models: models.map((one) => ({
          id: one.id,
          name: one.name ?? one.id,
          contextWindow: one.context_length,
          maxTokens: answerTokens(one),
          input: one.task_type === 'vision' ? ['text', 'image'] : ['text'],
          cost: {
            input: perMillion(one.pricing?.prompt),
            output: perMillion(one.pricing?.completion),
            cacheRead: perMillion(one.pricing?.input_cache_read),
            cacheWrite: perMillion(one.pricing?.prompt),
          },
          // What vLLM does not know: OpenAI's own fields and roles.
          compat: { supportsStore: false, supportsDeveloperRole: false, supportsReasoningEffort: false },
        })),
      },
    },
  };
}

/** https://opencode.ai/docs/config */
function openCodeConfig({ url, models, model }: Setup): object {
  const limits = (one: ListedModel) => ({ context: one.context_length, output: answerTokens(one) });
  return {
    model: `headgate/${model.id}`,
    provider: {
      headgate: {
        npm: '@ai-sdk/openai-compatible',
        name: 'Headgate',
        options: { baseURL: url, apiKey: '{env:HEADGATE_API_KEY}' },
        models: Object.fromEntries(models.map((one) => [one.id, { name: one.name ?? one.id, limit: limits(one) }])),
      },
    },
  };
}

/** Until it ends. A terminal sends its Ctrl-C to both: the agent decides what it means. */
function follow(child: ChildProcess): Promise<number> {
  const ignore = (): void => {};
  const end = (): void => void child.kill('SIGTERM');
  process.on('SIGINT', ignore);
  process.on('SIGTERM', end);
  return new Promise((resolve, reject) => {
    child.on('error', (error) => reject(new FailedError(`the agent cannot be started (${error.message})`)));
    child.on('exit', (status) => resolve(status === 0 ? exitCodes.ok : exitCodes.failed));
  }).finally(() => {
    process.off('SIGINT', ignore);
    process.off('SIGTERM', end);
  }) as Promise<number>;
}

export const codeCommand: Command = {
  name: 'code',
  usage: '[-m MODEL] [-p] [--with pi|opencode] [WORDS…] [-- ARGUMENTS…]',
  summary:
    'Work on the code in this folder with a coding agent on a model of the gateway: pi, which is installed on first use, ' +
    'or opencode, where it is installed. What follows -- is for the agent.',
  words: { min: 0, max: 10_000 },
  options: {
    model: { type: 'string', short: 'm', names: 'models', about: 'one for code, or that chats, if not said' },
    with: { type: 'string', choices: ['pi', 'opencode'], about: 'pi if not said' },
    print: { type: 'boolean', short: 'p', about: 'do what the words say and end' },
    'install-only': { type: 'boolean', about: 'install pi, and print where it is' },
  },
  run: code,
};
