import { ConfigError } from '#base/config-error.ts';
import type { Config } from '#base/config/config.ts';
import { type CommandContext, exitCodes, FailedError, wrap } from '#edge/cli/cli.ts';
import { checkBackups, checkPlatformKey } from './doctor-backups.ts';
import {
  checkClock,
  checkDatabase,
  checkDataDir,
  checkDisk,
  checkEngineFiles,
  checkGpus,
  checkNode,
  checkRedis,
  checkRunner,
  type Finding,
  note,
  ok,
  readPlace,
  wrong,
} from './doctor-checks.ts';
import { checkDocker } from './doctor-docker.ts';
import { checkVersions } from './doctor-engines.ts';
import { checkAgreement, checkGateway } from './doctor-gateways.ts';

interface Check {
  readonly name: string;
  readonly check: (config: Config, context: CommandContext) => Promise<readonly Finding[]>;
}

type RunCheck = (config: Config) => Finding | readonly Finding[] | Promise<Finding | readonly Finding[]>;

function toCheck(name: string, check: RunCheck): Check {
  return { name, check: async (config) => [await check(config)].flat() };
}

/** All checks, in the order in which they are reported. */
const checks: readonly Check[] = [
  toCheck('node', checkNode),
  toCheck('data folder', checkDataDir),
  toCheck('disk', checkDisk),
  toCheck('postgresql', checkDatabase),
  toCheck('backups', checkBackups),
  toCheck('redis', checkRedis),
  toCheck('clock', checkClock),
  toCheck('engine files', checkEngineFiles),
  toCheck('docker', checkDocker),
  toCheck('gpus', checkGpus),
  toCheck('terraform', checkRunner),
  toCheck('platform key', checkPlatformKey),
  toCheck('gateway', checkGateway),
  toCheck('gateways', checkAgreement),
  { name: 'engines', check: (config, context) => checkVersions(context, config) },
];

/** Reports for `headgate doctor` what a gateway of this environment lacks, and how to fix it. */

interface Checked extends Finding {
  readonly name: string;
}

/** Indent of the text of a finding, from its second line on. */
const margin = ' '.repeat(16);
const lineMin = 24;

const signs = { ok: '✓', note: '·', wrong: '✗' } as const;
const colours = { ok: 'green', note: 'dim', wrong: 'red' } as const;

export async function runDoctor(context: CommandContext): Promise<number> {
  const { json, out, terminal } = context;
  const found: Checked[] = [];
  const report = (name: string, finding: Finding): void => {
    found.push({ name, ...finding });
    if (json) return;
    const { state, message, next } = finding;
    const width = Math.max(lineMin, (terminal.columns ?? Infinity) - margin.length);
    const lines = [message, ...(next === undefined ? [] : [next])].flatMap((text) => wrap(text, width));
    const head = `${terminal.paint(colours[state], signs[state])} ${name.padEnd(margin.length - 3)} `;
    out(`${head}${lines.join(`\n${margin}`)}\n`);
  };
  const place = readPlace();
  report('configuration', place.finding);
  for (const { name, check } of checks) {
    const progress = terminal.progress(name);
    const finding = await settled(name, place.config === null ? null : check(place.config, context));
    progress.end();
    for (const one of finding) report(name, one);
  }
  const login = await checkLogin(context);
  if (login !== null) report('login', login);
  const bad = found.filter(({ state }) => state === 'wrong').length;
  if (json) out(`${JSON.stringify({ object: 'doctor', healthy: bad === 0, checks: found }, null, 2)}\n`);
  else out(bad === 0 ? '\nno problems found\n' : `\n${bad} ${bad === 1 ? 'problem' : 'problems'} found\n`);
  return bad === 0 ? exitCodes.ok : exitCodes.failed;
}

/** Checks the login of this user, whose gateway may be on another machine; null if the login is not used. */
async function checkLogin({ api, config }: CommandContext): Promise<Finding | null> {
  const { loginProblem, loginFile, keySource, url } = config;
  if (loginProblem !== null) return wrong(loginProblem, `fix or remove ${loginFile}, then run "headgate login"`);
  if (keySource !== 'login') return null;
  try {
    await api.call('GET', '/v1/models');
    return ok(`the gateway at ${url} accepts the key of this login`);
  } catch (error) {
    if (!(error instanceof FailedError)) throw error;
    const message = `the login at ${url} cannot be used: ${error.message}`;
    // An unavailable gateway elsewhere is no problem of this environment.
    return error.isPassing ? note(message) : wrong(message, 'run "headgate login" to save another gateway or key');
  }
}

/** Returns the findings of a check; an unexpected error of the check is reported as wrong. */
async function settled(name: string, check: Promise<readonly Finding[]> | null): Promise<readonly Finding[]> {
  if (check === null) return [{ state: 'note', message: 'not checked: the configuration cannot be read' }];
  try {
    return await check;
  } catch (error) {
    const message = error instanceof Error ? error.message : String(error);
    return [
      { state: 'wrong', message: error instanceof ConfigError ? message : `${name} cannot be checked (${message})` },
    ];
  }
}
