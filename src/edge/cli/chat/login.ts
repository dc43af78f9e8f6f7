import { normalUrl, parseClientConfig, removeLogin, writeLogin } from '#base/config/config.ts';
import {
  cleanText,
  type Command,
  type CommandContext,
  createApiClient,
  exitCodes,
  FailedError,
  jsonText,
  textFlag,
  UsageError,
} from '#edge/cli/shell/shell.ts';

/** `headgate login`: stores a gateway and its key, once the gateway has accepted the key. */

async function login(context: CommandContext): Promise<number> {
  const { config, terminal, json, out, err } = context;
  const file = fileOf(context);
  const named = context.words[0] ?? textFlag(context, 'url');
  const url = normalUrl(named ?? (terminal.isInteractive ? await askUrl(context) : config.url));
  const apiKey = (
    terminal.isInteractive ? await terminal.askSecret('API key (not shown): ') : await readKey(context)
  ).trim();
  if (apiKey === '') throw new UsageError('no key was given: type it, or pass it on standard input');
  const tried = parseClientConfig({ ...config.environment, HEADGATE_URL: url, HEADGATE_API_KEY: apiKey });
  const seen = await look({ ...tried, keySource: 'typed' });
  const loss = changed(file, () => writeLogin(file, { url, apiKey }));
  const answer = { object: 'login', url, file, ...seen };
  if (json) out(jsonText(answer));
  else out(`logged in at ${url}; ${seen.models} models; saved in ${file}\n`);
  if (loss !== null) err(`headgate: ${cleanText(loss)}\n`);
  const wins = ['HEADGATE_URL', 'HEADGATE_API_KEY', 'HEADGATE_API_KEY_FILE'].filter((name) => isSet(context, name));
  const isSame = config.url === url && (config.keySource !== 'environment' || config.apiKey === apiKey);
  if (wins.length > 0 && !isSame) err(`headgate: ${wins.join(' and ')} of this shell override this login\n`);
  return exitCodes.ok;
}

const isSet = ({ config }: CommandContext, name: string): boolean => (config.environment[name] ?? '') !== '';

async function askUrl({ config, terminal }: CommandContext): Promise<string> {
  const answer = (await terminal.ask(`Gateway [${config.url}]: `)).trim();
  return answer === '' ? config.url : answer;
}

async function readKey({ terminal }: CommandContext): Promise<string> {
  const words = (await terminal.readInput()).trim();
  if (/\s/.test(words)) throw new UsageError('standard input must contain one key and nothing else');
  return words;
}

/** Checks the key by listing the models. @throws FailedError */
async function look(config: CommandContext['config']): Promise<{ readonly models: number }> {
  const answer = await createApiClient(config).call('GET', '/v1/models');
  const data = typeof answer === 'object' && answer !== null && 'data' in answer ? answer.data : null;
  if (!Array.isArray(data))
    throw new FailedError(`${config.url} did not answer like a Headgate gateway; nothing was saved`);
  return { models: data.length };
}

function fileOf({ config }: CommandContext): string {
  if (config.loginFile !== null) return config.loginFile;
  throw new FailedError('there is no home folder to save a login in; set HEADGATE_URL and HEADGATE_API_KEY');
}

/** @throws FailedError */
function changed<T>(file: string, change: () => T): T {
  try {
    return change();
  } catch (error) {
    throw new FailedError(`${file} cannot be written (${error instanceof Error ? error.message : ''})`);
  }
}

function logout(context: CommandContext): Promise<number> {
  const { config, json, out } = context;
  const url = normalUrl(context.words[0] ?? textFlag(context, 'url') ?? config.url);
  const file = fileOf(context);
  const removed = changed(file, () => removeLogin(file, url));
  if (json) out(jsonText({ object: 'logout', url, removed }));
  else
    out(
      removed
        ? `removed the key of ${url} from this machine; "headgate keys revoke" revokes it everywhere\n`
        : `no key for ${url} is saved on this machine\n`,
    );
  return Promise.resolve(exitCodes.ok);
}

const urlOption = { url: { type: 'string', about: 'address of the gateway, without /v1' } } as const;

/** Hint against keys on the command line, which everybody on the machine can see and shells record. */
const keyHint =
  'other users of the machine can see a key on a command line; type it when asked, or pass it on standard input: ' +
  'headgate login URL < FILE';

export const loginCommands: readonly Command[] = [
  {
    name: 'login',
    usage: '[URL]',
    summary: 'Save a gateway and its key; the key is typed without echo, or read from standard input.',
    words: { min: 0, max: 1 },
    options: urlOption,
    refused: { key: keyHint, 'api-key': keyHint, token: keyHint },
    run: login,
  },
  {
    name: 'logout',
    usage: '[URL]',
    summary: 'Remove the saved key of a gateway from this machine; the key stays valid.',
    words: { min: 0, max: 1 },
    options: urlOption,
    run: logout,
  },
];
