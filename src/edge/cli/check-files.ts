import { statSync } from 'node:fs';
import { basename, dirname } from 'node:path';
import {
  type EngineFileProblem,
  type EngineFilesResult,
  formatEngineFileProblem,
  loadDockerHosts,
  loadEngineFileList,
  loadEngineFiles,
} from '#core/catalog/catalog.ts';
import { type CommandContext, exitCodes, UsageError } from '#edge/cli/shell/shell.ts';

/** Checks engine files without a gateway, for continuous integration. */
export function checkFiles({ config, words, json, out, err }: CommandContext): number {
  const named = words.length > 0 ? words : [config.enginesDir ?? 'engines'];
  const result = loadNamed(named);
  const problems = result.ok ? [] : result.problems;
  const engines = result.ok ? result.engines.map(({ id, file }) => ({ id, file })) : [];
  if (json) out(`${JSON.stringify({ valid: result.ok, engines, problems }, null, 2)}\n`);
  else if (result.ok) out(`${engines.length} engine ${engines.length === 1 ? 'file is' : 'files are'} valid\n`);
  else err(problems.map((problem) => `${formatEngineFileProblem(problem)}\n`).join(''));
  return result.ok ? exitCodes.ok : exitCodes.failed;
}

/** Loads the named files, or one folder; checks the hosts' file in both cases. */
function loadNamed(words: readonly string[]): EngineFilesResult {
  const [folder = ''] = words;
  if (words.every((word) => kindOf(word) === 'file')) {
    const engines = words.filter((word) => basename(word) !== hostsFile);
    const hosts = words.filter((word) => basename(word) === hostsFile);
    return withHosts(loadEngineFileList(engines), hosts.map(dirname));
  }
  if (words.length > 1) throw new UsageError('give one folder, or only files');
  return withHosts(loadEngineFiles(folder), [folder]);
}

const hostsFile = 'hosts.yaml';

function kindOf(path: string): 'file' | 'folder' {
  const stat = statSync(path, { throwIfNoEntry: false });
  if (stat === undefined) throw new UsageError(`there is no ${path}`);
  return stat.isDirectory() ? 'folder' : 'file';
}

function withHosts(engines: EngineFilesResult, folders: readonly string[]): EngineFilesResult {
  const problems = folders.flatMap((folder): readonly EngineFileProblem[] => {
    // Only the gateway knows the Docker engine that is used without the file; any address passes here.
    const hosts = loadDockerHosts(folder, { defaultDocker: 'unix:///var/run/docker.sock' });
    return hosts.ok ? [] : hosts.problems;
  });
  if (problems.length === 0) return engines;
  return { ok: false, problems: [...(engines.ok ? [] : engines.problems), ...problems] };
}
