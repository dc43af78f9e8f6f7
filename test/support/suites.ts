import { accessSync, constants, existsSync, globSync } from 'node:fs';
import { findProgram, whyNoCompose } from './compose.ts';
import { whyNoDocker } from './docker.ts';
import { findRedisServer, findValkeyServer } from './redis.ts';

/**
 * Suites that need something a bare machine does not have. A suite is a folder test/suites/<name>/ and one line here:
 * why it cannot run on this machine, or null when it can.
 */
type Environment = Readonly<Record<string, string | undefined>>;
type Probe = (environment: Environment) => string | null;

const probes: Readonly<Record<string, Probe>> = {
  caddy: (environment) =>
    findProgram('caddy', environment) === null ? 'there is no caddy on PATH' : probeTerraform(environment),
  compose: whyNoCompose,
  docker: whyNoDocker,
  prometheus: (environment) => (findProgram('promtool', environment) === null ? 'there is no promtool on PATH' : null),
  'docker-terraform': (environment) => whyNoDocker(environment) ?? probeDockerTerraform(environment),
  'docker-vllm': (environment) => whyNoDocker(environment) ?? probeVllm(environment),
  focus: (environment) =>
    findProgram('focus-validator', environment) === null
      ? 'there is no focus-validator on PATH (pip install focus-validator multimethod==1.9.1)'
      : null,
  schemathesis: (environment) =>
    findProgram('schemathesis', environment) === null ? 'there is no schemathesis on PATH (pip install it)' : null,
  slurm: probeSlurm,
  terraform: probeTerraform,
  vllm: probeVllm,
  redis: ({ PATH }) =>
    findRedisServer(PATH) === null ? 'there is no redis-server and no valkey-server on PATH' : null,
  valkey: (environment) =>
    findValkeyServer(environment) === null
      ? 'VALKEY_BIN names no program, and there is no valkey-server on PATH'
      : null,
  'vllm-older': probeOlderVllm,
  shells: (environment) => {
    const missing = ['zsh', 'fish'].find((name) => findProgram(name, environment) === null);
    return missing === undefined ? null : `there is no ${missing} on PATH`;
  },
  browser: (environment) => (findProgram('chromium', environment) === null ? 'there is no chromium on PATH' : null),
};

/** Modules are applied by SSH to a server that only root may run. */
function probeTerraform(environment: Environment): string | null {
  const missing = ['terraform', 'ssh-keygen', 'bwrap', 'python3', 'prometheus'].find(
    (name) => findProgram(name, environment) === null,
  );
  if (missing !== undefined) return `there is no ${missing} on PATH`;
  if (!existsSync('/usr/sbin/sshd')) return 'there is no /usr/sbin/sshd';
  return process.getuid?.() === 0 ? null : 'only root may run sshd';
}

/** Debian has its programs in sbin, which PATH need not name. */
function probeSlurm(environment: Environment): string | null {
  const missing = ['munged', 'slurmctld', 'slurmd', 'srun'].find(
    (name) => findProgram(name, environment) === null && !existsSync(`/usr/sbin/${name}`),
  );
  return missing === undefined
    ? probeTerraform(environment)
    : `there is no ${missing} (apt-get install munge slurmctld slurmd slurm-client)`;
}

/** Its images are made of programs of this machine. */
function probeDockerTerraform(environment: Environment): string | null {
  const missing = ['iptables', 'busybox', 'scp', 'docker'].find((name) => findProgram(name, environment) === null);
  return missing === undefined ? probeTerraform(environment) : `there is no ${missing} on PATH`;
}

export interface SuitePlan {
  /** Suites that will run. */
  readonly run: readonly string[];
  /** Notes of the report on the others, one sentence each. */
  readonly notes: readonly string[];
  /** Problems that make the run fail, whatever its tests do. */
  readonly problems: readonly string[];
}

/**
 * Decides which suites run. TEST_REQUIRE (names, comma-separated) turns a suite that is left out into a failure.
 * @param hasTests whether there are test files for a suite
 */
export function planSuites(environment: Environment, hasTests: (name: string) => boolean): SuitePlan {
  const required = (environment['TEST_REQUIRE'] ?? '').split(',').map((name) => name.trim());
  const names = Object.keys(probes);
  const run: string[] = [];
  const notes: string[] = [];
  const problems = required
    .filter((name) => name !== '' && !names.includes(name))
    .map((name) => `TEST_REQUIRE names an unknown suite: ${name} (known: ${names.join(', ')})`);
  for (const name of names) {
    const reason = hasTests(name) ? (probes[name] ?? noProbe)(environment) : null;
    if (reason !== null) {
      notes.push(`left out: ${name} (${reason})`);
      if (required.includes(name)) problems.push(`required suite cannot run: ${name} (${reason})`);
    } else if (hasTests(name)) run.push(name);
    else if (required.includes(name)) notes.push(`nothing to run: ${name} (no tests in this version)`);
  }
  return { run, notes, problems };
}

/** Checks whether the folder of a suite holds test files. */
export function suiteHasTests(name: string): boolean {
  return globSync(`test/suites/${name}/**/*.test.ts`, { cwd: new URL('../..', import.meta.url).pathname }).length > 0;
}

function noProbe(): string {
  return 'test/support/suites.ts does not say when it can run';
}

function probeVllm({ VLLM_BIN: program, VLLM_MODEL: model }: Environment): string | null {
  const missing = Object.entries({ VLLM_BIN: program, VLLM_MODEL: model }).filter(([, value]) => (value ?? '') === '');
  if (missing.length > 0) {
    return `${missing.map(([name]) => name).join(' and ')} ${missing.length > 1 ? 'are' : 'is'} not set`;
  }
  if (program === undefined || !isProgram(program)) return `VLLM_BIN names no program: ${program}`;
  if (model?.startsWith('/') === true && !existsSync(model)) return `VLLM_MODEL names no folder: ${model}`;
  return null;
}

/** An older release beside the one of VLLM_BIN: operators run both. */
function probeOlderVllm({ VLLM_OLDER_BIN: program = '', VLLM_MODEL: model }: Environment): string | null {
  if (program === '') return 'VLLM_OLDER_BIN is not set: only one version of vLLM is tried';
  if (!isProgram(program)) return `VLLM_OLDER_BIN names no program: ${program}`;
  return probeVllm({ VLLM_BIN: program, VLLM_MODEL: model });
}

function isProgram(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
