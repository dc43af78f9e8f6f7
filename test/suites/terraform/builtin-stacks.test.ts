import { execFileSync } from 'node:child_process';
import { chmodSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { freePort } from '#test/free-port.ts';
import { processesWith } from '#test/terraform/processes.ts';
import { until, useStackNode } from '#test/terraform/stack-node.ts';
import { builtinFolder } from '#test/terraform/terraform.ts';

const names = readdirSync(builtinFolder).toSorted();
const { ssh, prepare, node } = useStackNode();

describe('the built-in stacks', () => {
  it('are k3s, monitoring, notebook, ray, scheduler, slurm and vllm', () => {
    expect(names).toEqual(['k3s', 'monitoring', 'notebook', 'ray', 'scheduler', 'slurm', 'vllm']);
  });

  it.each(names)('include %s: formatted, valid, and with the built-in provider only', async (stack) => {
    const place = await prepare(stack);
    expect(await place.terraform('fmt', '-check', '-recursive')).toBe('');
    expect(JSON.parse(await place.terraform('validate', '-json'))).toMatchObject({ valid: true, diagnostics: [] });
    expect(await place.terraform('providers')).not.toContain('registry.');
  });

  it('include scheduler: rejects an invalid folder, runs jobs, resumes them and stops', async () => {
    const place = await prepare('scheduler');
    const folder = join(node, 'queue');
    const variables = { cluster_id: 'c1', nodes: [ssh().node('n0')], slots: 2, folder };
    await expect(place.change('apply', { ...variables, folder: "/x'; id; '" })).rejects.toThrow('absolute path');
    await place.change('apply', variables);
    const hgq = (...args: readonly string[]): string =>
      execFileSync('sh', [join(folder, 'hgq'), ...args], { encoding: 'utf8', cwd: node }).trim();
    const [good, bad, long] = [hgq('submit', 'echo "in $(pwd)"'), hgq('submit', 'exit 3'), hgq('submit', 'sleep 1000')];
    await until(() => (hgq('status', good) === 'done 0' && hgq('status', bad) === 'done 3' ? true : null));
    expect(hgq('log', good)).toBe(`in ${node}`);
    await until(() => (hgq('status', long).startsWith('running') ? true : null));
    const second = hgq('submit', 'echo second');
    await until(() => (hgq('status', second) === 'done 0' ? true : null));

    await place.change('destroy', variables);
    expect(hgq('status', long)).toBe('pending');
    expect(hgq('ls')).not.toContain('running');
    // The waiting job is there for the next apply.
    await place.change('apply', variables);
    await until(() => (hgq('status', long).startsWith('running') ? true : null));
    // Two workers that begin at once run it once.
    const left = (): string =>
      execFileSync('sh', ['-c', `ps -eo args | grep -c "[r]unning/${long}/command" || true`], {
        encoding: 'utf8',
      }).trim();
    expect(await until(() => (left() === '0' ? null : left()))).toBe('1');
    hgq('cancel', long);
    await until(() => (hgq('status', long).startsWith('done') ? true : null));
    expect(left()).toBe('0');
    await place.change('destroy', variables);
  });

  it('include notebook: rejects a short password, runs Python with the right one, and stops', async () => {
    const place = await prepare('notebook');
    const [folder, port] = [join(node, 'notebook'), await freePort()];
    const variables = { nodes: [ssh().node('n0')], folder, port, jupyter: false, password: 'correct horse battery' };
    await expect(place.change('apply', { ...variables, password: 'short' })).rejects.toThrow('12 to 200 characters');
    const log = await place.change('apply', variables);
    expect(log).not.toContain('correct horse');
    expect(JSON.parse(await place.terraform('output', '-json'))).toMatchObject({
      web_port: { value: port },
      web_node: { value: 'n0' },
    });
    const url = `http://127.0.0.1:${port}`;
    const origin = { origin: url, 'content-type': 'application/json' };
    const post = (path: string, body: string, headers: Record<string, string> = origin): Promise<Response> =>
      fetch(`${url}${path}`, { method: 'POST', body, headers, redirect: 'manual' });
    const run = JSON.stringify({ code: 'x = 20\nprint("hi")\nx + 1' });
    expect((await post('/run', run)).status).toBe(401);
    expect((await post('/login', 'password=wrong')).status).toBe(401);
    const opened = await post('/login', 'password=correct+horse+battery');
    const cookie = (opened.headers.get('set-cookie') ?? '').split(';')[0] ?? '';
    expect([opened.status, opened.headers.get('set-cookie')]).toEqual([
      303,
      expect.stringContaining('HttpOnly; SameSite=Strict'),
    ]);
    expect((await post('/run', run, { cookie })).status).toBe(403);
    expect((await post('/run', run, { ...origin, origin: 'https://evil.example', cookie })).status).toBe(403);
    expect(await (await post('/run', run, { ...origin, cookie })).json()).toEqual({ output: 'hi\n21\n' });
    const error = JSON.stringify({ code: '1/0' });
    expect(await (await post('/run', error, { ...origin, cookie })).text()).toContain('ZeroDivisionError');
    await post('/cells', '[{"code": "x"}]', { ...origin, cookie });
    expect(readFileSync(join(folder, 'notebook.json'), 'utf8')).toBe('[{"code": "x"}]');
    // The password is in no file of the node that outlives the start.
    expect(readdirSync(folder)).not.toContain('password');
    expect(readFileSync(join(place.module, 'terraform.tfstate'), 'utf8')).not.toContain('correct horse');
    await place.change('destroy', variables);
    await expect(fetch(`${url}/healthz`)).rejects.toThrow('fetch failed');
    expect(readdirSync(folder)).toContain('notebook.json');
  });

  it('include notebook: starts the named Jupyter with the Python beside it, and ends its kernels', async () => {
    const place = await prepare('notebook');
    const [folder, port] = [join(node, 'jupyter'), await freePort()];
    const variables = { nodes: [ssh().node('n0')], folder, port, password: 'correct horse battery' };
    const missing = { ...variables, jupyter_binary: join(node, 'nothing') };
    await expect(place.change('apply', missing)).rejects.toThrow('there is no program at');
    const all = { ...variables, jupyter_binary: jupyterStandIn() };
    await place.change('apply', all);
    const answer = await fetch(`http://127.0.0.1:${port}/`);
    expect(await answer.text()).toContain("c.PasswordIdentityProvider.hashed_password = 'hash of 21 characters'");
    expect(readdirSync(folder)).not.toContain('password');
    const mark = `HEADGATE_NOTEBOOK=${folder}`;
    expect(processesWith(mark)).toHaveLength(2);
    await place.change('destroy', all);
    expect(processesWith(mark)).toEqual([]);
  });

  it('include monitoring: names what a node needs, scrapes with the given programs, and starts Grafana', async () => {
    const place = await prepare('monitoring');
    const [port, exporterPort] = [await freePort(), await freePort()];
    const exporter = join(node, 'exporter');
    const variables = {
      nodes: [ssh().node('n0')],
      port,
      exporter_port: exporterPort,
      folder: join(node, 'monitoring'),
    };
    await expect(place.change('apply', { ...variables, node_exporter_binary: join(node, 'nothing') })).rejects.toThrow(
      /there is no program at/,
    );
    // An exporter as small as one can be: the format is Prometheus' own.
    writeFileSync(exporter, exporterProgram);
    chmodSync(exporter, 0o755);
    const all = { ...variables, node_exporter_binary: exporter };
    await place.change('apply', all);
    const ask = async (): Promise<string | null> => {
      const answer = await fetch(`http://127.0.0.1:${port}/api/v1/query?query=headgate_test`);
      const { data } = (await answer.json()) as {
        data: { result: { metric: { node: string }; value: [number, string] }[] };
      };
      const [sample] = data.result;
      return sample === undefined ? null : `${sample.metric.node} ${sample.value[1]}`;
    };
    expect(await until(ask)).toBe('n0 42');

    const grafanaPort = await freePort();
    const withGrafana = { ...all, grafana: true, grafana_port: grafanaPort };
    await expect(place.change('apply', withGrafana)).rejects.toThrow('set the input grafana_password');
    const complete = { ...withGrafana, grafana_password: 'correct-horse-battery', grafana_binary: grafanaStandIn() };
    expect(await place.change('apply', complete)).not.toContain('correct-horse');
    expect(JSON.parse(await place.terraform('output', '-json'))).toMatchObject({ web_port: { value: grafanaPort } });
    expect(readFileSync(join(place.module, 'terraform.tfstate'), 'utf8')).not.toContain('correct-horse');
    const grafana = (await (await fetch(`http://127.0.0.1:${grafanaPort}/`)).json()) as GrafanaFiles;
    expect(grafana).toMatchObject({ password: 'correct-horse-battery', prometheus: `http://127.0.0.1:${port}` });
    expect(grafana.expressions.length).toBeGreaterThan(5);
    for (const query of grafana.expressions) {
      const { status } = await fetch(
        `http://127.0.0.1:${port}/api/v1/query?${new URLSearchParams({ query }).toString()}`,
      );
      expect([query, status]).toEqual([query, 200]);
    }
    expect(readdirSync(join(variables.folder, 'grafana'))).not.toContain('password');

    await place.change('destroy', complete);
    for (const each of [port, exporterPort, grafanaPort]) {
      await expect(fetch(`http://127.0.0.1:${each}/`)).rejects.toThrow('fetch failed');
    }
  });
});

const exporterProgram = `#!/usr/bin/env python3
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
host, port = sys.argv[1].split('=', 1)[1].rsplit(':', 1)
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header('content-type', 'text/plain; version=0.0.4')
        self.end_headers()
        self.wfile.write(b'headgate_test 42\\n')
    def log_message(self, *args):
        pass
HTTPServer((host, int(port)), Handler).serve_forever()
`;

/** JupyterLab is large: this program has its own Python modules, as one in a virtual environment, and a kernel. */
function jupyterStandIn(): string {
  const bin = join(node, 'venv', 'bin');
  const modules = join(node, 'venv', 'lib');
  for (const folder of [bin, join(modules, 'jupyter_server')]) mkdirSync(folder, { recursive: true });
  const auth = 'def passwd(text):\n    return "hash of %d characters" % len(text)\n';
  writeFileSync(join(modules, 'jupyter_server', 'auth.py'), auth);
  writeFileSync(join(bin, 'python3'), `#!/bin/sh\nPYTHONPATH='${modules}' exec python3 "$@"\n`, { mode: 0o755 });
  writeFileSync(join(bin, 'jupyter-lab'), jupyterProgram, { mode: 0o755 });
  return join(bin, 'jupyter-lab');
}

const jupyterProgram = `#!/usr/bin/env python3
import subprocess, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
options = dict(argument.split('=', 1) for argument in sys.argv[1:] if '=' in argument)
config = open(options['--config'], 'rb').read()
subprocess.Popen(['sleep', '1000'], start_new_session=True)
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(config)
    def log_message(self, *args):
        pass
HTTPServer((options['--ip'], int(options['--port'])), Handler).serve_forever()
`;

interface GrafanaFiles {
  readonly password: string;
  readonly prometheus: string;
  readonly expressions: readonly string[];
}

/** Grafana cannot be downloaded here: this program reads what Grafana would, and answers with it. */
function grafanaStandIn(): string {
  const home = join(node, 'grafana-home');
  for (const folder of ['bin', 'conf']) mkdirSync(join(home, folder), { recursive: true });
  writeFileSync(join(home, 'conf', 'defaults.ini'), '');
  writeFileSync(join(home, 'bin', 'grafana'), grafanaProgram(home));
  chmodSync(join(home, 'bin', 'grafana'), 0o755);
  return join(home, 'bin', 'grafana');
}

const grafanaProgram = (home: string): string => `#!/usr/bin/env python3
import configparser, glob, json, re, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
assert sys.argv[1:3] == ['server', '--homepath=${home}'], sys.argv
settings = configparser.ConfigParser(interpolation=None)
settings.read_file(open(sys.argv[3].removeprefix('--config=')))
provisioning = settings['paths']['provisioning']
[source] = json.load(open(glob.glob(provisioning + '/datasources/*.yaml')[0]))['datasources']
[files] = json.load(open(glob.glob(provisioning + '/dashboards/*.yaml')[0]))['providers']
board = json.load(open(glob.glob(files['options']['path'] + '/*.json')[0]))
targets = [target for panel in board['panels'] for target in panel['targets']]
assert all(target['datasource']['uid'] == source['uid'] for target in targets)
password = re.fullmatch(r'[$]__file{(.*)}', settings['security']['admin_password'])[1]
answer = json.dumps({
    'password': open(password).read(), 'prometheus': source['url'], 'expressions': [target['expr'] for target in targets],
}).encode()
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(answer)
    def log_message(self, *args):
        pass
HTTPServer((settings['server']['http_addr'], int(settings['server']['http_port'])), Handler).serve_forever()
`;
