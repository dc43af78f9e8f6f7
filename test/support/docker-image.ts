import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  chmodSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { callDocker, type TestDocker } from './docker.ts';

const repository = new URL('../..', import.meta.url).pathname;

/** Prints an `nvidia-smi` report where the variable of nvidia's runtime names GPUs; 4 GiB of 80 are in use. */
const fakeNvidiaSmi = `#!/usr/bin/node
const wanted = process.env.NVIDIA_VISIBLE_DEVICES ?? '';
const ids = wanted === 'all' ? ['GPU-aaaa', 'GPU-bbbb'] : wanted.split(',').filter((id) => id.startsWith('GPU-'));
if (ids.length === 0) { console.log('No devices were found'); process.exit(6); }
const query = process.argv.slice(2).find((argument) => argument.startsWith('--query-'));
const rows = { 'uuid,memory.total,name,index,mig.mode.current': '81920, Fake H100, 0, [N/A]', 'uuid,memory.used,memory.total,utilization.gpu': '4096, 81920, 37', 'gpu_uuid,pid,process_name': '4711, python3' };
for (const id of ids) console.log(id + ', ' + rows[query.split('=')[1]]);
`;

/**
 * Puts an image into an engine that behaves like vLLM's: its entrypoint is the stand-in's `serve`. Made from this
 * Node and the libraries it needs, by tar, once for each state of the stand-in; nothing is pulled.
 */
export async function loadStandinImage(
  docker: TestDocker,
  name = 'headgate-test/vllm-standin:v0.32.0',
): Promise<string> {
  const variables = ['PATH=/usr/bin', ...Object.entries(compiled('/app')).map(([key, value]) => `${key}=${value}`)];
  const entrypoint = 'ENTRYPOINT ["/usr/bin/node","/app/standin/standin.js","serve"]';
  const changes = [entrypoint, 'WORKDIR /app', ...variables.map((variable) => `ENV ${variable}`)];
  await importImage(docker, { name, tarPath: standinTar(), changes });
  return name;
}

export interface ImageSource {
  /** `repository:tag` */
  readonly name: string;
  /** A tar of all files. */
  readonly tarPath: string;
  /** Lines of a Dockerfile. */
  readonly changes: readonly string[];
}

/** Makes an image of one layer. */
export async function importImage(docker: TestDocker, { name, tarPath, changes }: ImageSource): Promise<void> {
  const [repo = '', tag = ''] = name.split(':');
  const query = new URLSearchParams({ fromSrc: '-', repo, tag });
  for (const change of changes) query.append('changes', change);
  const path = `/images/create?${query.toString()}`;
  const answer = await callDocker(docker.socketPath, { method: 'POST', path, tarPath });
  if (!JSON.stringify(answer).includes('sha256:')) throw new Error(`The image was not made: ${JSON.stringify(answer)}`);
}

/** A tar file of the image's whole file system; kept for later runs. */
function standinTar(): string {
  const sources = readdirSync(join(repository, 'engines/standin')).filter((file) => /\.[jt]s$/.test(file));
  const texts = sources.map((file) => readFileSync(join(repository, 'engines/standin', file), 'utf8'));
  const parts = [process.version, process.execPath, 'sh', 'compiled', fakeNvidiaSmi, ...sources, ...texts];
  const key = createHash('sha256').update(JSON.stringify(parts)).digest('hex').slice(0, 16);
  const tarPath = join(tmpdir(), `headgate-standin-image-${key}.tar`);
  if (existsSync(tarPath)) return tarPath;
  removeOldTars();
  const root = mkdtempSync(join(tmpdir(), 'headgate-standin-image-'));
  try {
    place(root, '/usr/bin/node', process.execPath);
    for (const library of librariesOf(process.execPath)) place(root, library, library);
    // As vLLM's image has one.
    place(root, '/bin/sh', '/bin/sh');
    for (const library of librariesOf('/bin/sh')) place(root, library, library);
    for (const file of sources) place(root, `/app/standin/${file}`, join(repository, 'engines/standin', file));
    writeFileSync(join(root, 'app/package.json'), '{"type":"module"}\n');
    writeFileSync(join(root, 'usr/bin/nvidia-smi'), fakeNvidiaSmi, { mode: 0o755 });
    chmodSync(join(root, 'usr/bin/node'), 0o755);
    // Compiled code of the stand-in, without which every container would strip its types again.
    const env = { PATH: process.env['PATH'], ...compiled(join(root, 'app')) };
    execFileSync(process.execPath, [join(root, 'app/standin/standin.js'), '--help'], { env, stdio: 'ignore' });
    mkdirSync(join(root, 'tmp'));
    chmodSync(join(root, 'tmp'), 0o1777);
    execFileSync('tar', ['--create', '--file', `${root}.part`, '--directory', root, '.']);
    renameSync(`${root}.part`, tarPath);
  } finally {
    rmSync(root, { recursive: true, force: true });
  }
  return tarPath;
}

/** Where Node keeps compiled code of an application, so that it may be moved with it. */
function compiled(folder: string): Readonly<Record<string, string>> {
  return { NODE_COMPILE_CACHE: `${folder}/compiled`, NODE_COMPILE_CACHE_PORTABLE: '1' };
}

/** Those of yesterday's stand-ins; each is 130 MB. */
function removeOldTars(): void {
  for (const name of readdirSync(tmpdir()).filter((found) => /^headgate-standin-image-.*\.(tar|part)$/.test(found))) {
    const path = join(tmpdir(), name);
    if (Date.now() - (statSync(path, { throwIfNoEntry: false })?.mtimeMs ?? Date.now()) < 86_400_000) continue;
    rmSync(path, { force: true });
  }
}

/** Paths as the program asks for them, the dynamic loader among them. */
export function librariesOf(program: string): string[] {
  const listed = execFileSync('ldd', [program], { encoding: 'utf8' });
  return [...listed.matchAll(/(\/\S+) \(0x/g)].map(([, path = '']) => path);
}

export function place(root: string, path: string, source: string): void {
  const target = join(root, path);
  mkdirSync(dirname(target), { recursive: true });
  copyFileSync(resolveLink(source), target);
}

function resolveLink(path: string): string {
  try {
    const target = readlinkSync(path);
    return target.startsWith('/') ? target : join(dirname(path), target);
  } catch {
    return path;
  }
}
