import { spawn } from 'node:child_process';
import {
  type Command,
  type CommandContext,
  exitCodes,
  FailedError,
  jsonText,
  UsageError,
} from '#edge/cli/shell/shell.ts';

/** `headgate open`: the page of a thing, by its id or name. */

const pages = [
  'overview',
  'keys',
  'usage',
  'batches',
  'wallet',
  'budgets',
  'models',
  'playground',
  'stacks',
  'runs',
  'clusters',
  'costs',
  'projects',
  'users',
  'organization',
  'webhooks',
  'audit',
  'engines',
  'organizations',
] as const;

/** Page of the ids with a prefix. */
const byPrefix: Readonly<Record<string, string>> = {
  budget: 'budgets',
  key: 'keys',
  proj: 'projects',
  org: 'organizations',
  run: 'runs',
  wh: 'webhooks',
};

const requestId = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;

/** Returns the path of the page. Everything that is no page and no id is the name of a model. */
function pathOf(thing: string): string {
  if (thing === '' || thing === 'overview') return '/';
  if (pages.some((name) => name === thing)) return `/portal/${thing}`;
  if (requestId.test(thing)) return `/portal/usage/${thing.toLowerCase()}`;
  const [prefix = ''] = /^[a-z]+(?=_[0-9a-f]{32}$)/.exec(thing) ?? [];
  const place = Object.hasOwn(byPrefix, prefix) ? byPrefix[prefix] : undefined;
  return `/portal/${place ?? 'models'}/${encodeURIComponent(thing)}`;
}

async function open(context: CommandContext): Promise<number> {
  const [thing = ''] = context.words;
  if (thing.length > 512) throw new UsageError('a name or an id has at most 512 characters');
  const url = new URL(pathOf(thing), context.config.url).href;
  if (context.terminal.isWatched && context.flags['print'] !== true && !context.json) await openBrowser(url);
  context.out(context.json ? jsonText({ url }) : `${url}\n`);
  return exitCodes.ok;
}

/** @throws FailedError if this machine has no browser */
export function openBrowser(url: string): Promise<void> {
  const program = process.platform === 'darwin' ? 'open' : 'xdg-open';
  // Uses no shell, and passes only web addresses, which no program could mistake for an option or a file.
  if (!/^https?:\/\//.test(url))
    throw new FailedError('the gateway answered with an address that is not http or https');
  return new Promise((resolve, reject) => {
    const child = spawn(program, [url], { stdio: 'ignore', detached: true });
    child.on('error', () =>
      reject(new FailedError(`there is no ${program} on this machine; open this address yourself: ${url}`)),
    );
    child.on('spawn', () => {
      child.unref();
      resolve();
    });
  });
}

export const openCommand: Command = {
  name: 'open',
  usage: '[PAGE|MODEL|ID] [--print]',
  summary: 'Open a page in the browser: of a model, key, project, run, webhook, organization or request.',
  words: { min: 0, max: 1 },
  names: 'models',
  options: { print: { type: 'boolean', about: 'only print the address' } },
  run: open,
};
