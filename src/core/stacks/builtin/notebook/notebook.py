"""A notebook for Python in the browser, which uses only the standard library. Listens on 127.0.0.1."""

import ast
import contextlib
import hashlib
import hmac
import html
import io
import json
import os
import secrets
import sys
import threading
import time
import traceback
from http.cookies import SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

FOLDER = os.path.dirname(os.path.abspath(__file__))
CELLS = os.path.join(FOLDER, 'notebook.json')
BODY_BYTES_MAX = 4 * 1024 * 1024
OUTPUT_CHARS_MAX = 200_000
SESSION = secrets.token_urlsafe(32)
NAMES = {'__name__': '__main__'}
RUNNING = threading.Lock()
LOGIN = threading.Lock()

with open(os.path.join(FOLDER, 'password'), encoding='utf-8') as file:
    PASSWORD = hashlib.sha256(file.read().encode()).digest()

STYLE = """
body { font: 15px system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #1d2433 }
textarea { width: 100%; box-sizing: border-box; font: 14px ui-monospace, monospace; padding: .6rem; border-radius: 6px }
pre { background: #f3f5f9; padding: .6rem; border-radius: 6px; overflow: auto; white-space: pre-wrap }
button, input { font: inherit; padding: .35rem .8rem; margin-right: .4rem }
"""

LOGIN_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Notebook</title><style>%s</style>
<h1>Notebook</h1><p>%s</p><form method="post" action="/login"><label>Password
<input type="password" name="password" autocomplete="current-password" autofocus required></label>
<button>Open</button></form></html>"""

PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Notebook</title><style>%s</style>
<h1>Notebook</h1><main id="cells"></main><button id="add">Add a cell</button>
<script>
const cells = document.getElementById('cells')
const all = () => [...cells.children].map((cell) => ({ code: cell.querySelector('textarea').value,
  output: cell.querySelector('pre').textContent }))
const send = (path, body) => fetch(path, { method: 'POST', headers: { 'content-type': 'application/json' },
  body: JSON.stringify(body) })
const save = () => send('/cells', all())
function add({ code = '', output = '' } = {}) {
  const cell = document.createElement('section')
  const text = document.createElement('textarea')
  const run = document.createElement('button')
  const remove = document.createElement('button')
  const shown = document.createElement('pre')
  text.value = code
  text.rows = Math.max(3, code.split('\\n').length)
  text.setAttribute('aria-label', 'Python')
  run.textContent = 'Run'
  remove.textContent = 'Remove'
  shown.textContent = output
  const go = async () => {
    run.disabled = true
    const answer = await send('/run', { code: text.value })
    if (answer.status === 401) location.reload()
    shown.textContent = (await answer.json()).output
    run.disabled = false
    await save()
  }
  run.onclick = go
  remove.onclick = () => { cell.remove(); save() }
  text.onkeydown = (event) => { if (event.key === 'Enter' && event.shiftKey) { event.preventDefault(); go() } }
  cell.append(text, run, remove, shown)
  cells.append(cell)
}
document.getElementById('add').onclick = () => add()
fetch('/cells').then((answer) => answer.json()).then((saved) => saved.length ? saved.forEach(add) : add())
</script></html>"""


def run(code):
    """What a cell prints, and the value of its last expression."""
    out = io.StringIO()
    with RUNNING, contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        try:
            tree = ast.parse(code, '<cell>')
            last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
            exec(compile(tree, '<cell>', 'exec'), NAMES)
            value = None if last is None else eval(compile(ast.Expression(last.value), '<cell>', 'eval'), NAMES)
            if value is not None:
                print(repr(value))
        except BaseException:
            traceback.print_exc(limit=-8, file=out)
    text = out.getvalue()
    return text if len(text) <= OUTPUT_CHARS_MAX else text[:OUTPUT_CHARS_MAX] + '\n… cut\n'


class Handler(BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    server_version = 'notebook'

    def answer(self, status, body, kind='application/json', headers=()):
        data = body.encode()
        self.send_response(status)
        self.send_header('content-type', kind + '; charset=utf-8')
        self.send_header('content-length', str(len(data)))
        self.send_header('cache-control', 'no-store')
        self.send_header('x-frame-options', 'DENY')
        self.send_header('x-content-type-options', 'nosniff')
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def page(self, body, status=200, headers=()):
        self.answer(status, body, 'text/html', headers)

    def is_known(self):
        cookie = SimpleCookie(self.headers.get('cookie', '')).get('notebook')
        return cookie is not None and hmac.compare_digest(cookie.value.encode(), SESSION.encode())

    def is_own_page(self):
        """Whether the request comes from a page of this notebook: browsers say it of every POST."""
        origin = self.headers.get('origin')
        return origin is not None and origin.split('://')[-1] == self.headers.get('host')

    def read(self):
        length = self.headers.get('content-length', '')
        if not length.isdigit() or int(length) > BODY_BYTES_MAX:
            return None
        return self.rfile.read(int(length))

    def do_GET(self):
        if self.path == '/healthz':
            self.answer(200, '{"ok": true}')
        elif not self.is_known():
            if self.path == '/':
                self.page(LOGIN_PAGE % (STYLE, ''))
            else:
                self.answer(401, '{"error": "sign in first"}')
        elif self.path == '/':
            self.page(PAGE % STYLE)
        elif self.path == '/cells':
            try:
                with open(CELLS, encoding='utf-8') as file:
                    self.answer(200, file.read())
            except FileNotFoundError:
                self.answer(200, '[]')
        else:
            self.answer(404, '{"error": "there is nothing here"}')

    def do_POST(self):
        body = self.read()
        if body is None:
            self.close_connection = True
            self.answer(413, '{"error": "the body has no length, or is too long"}')
        elif self.path == '/login':
            self.login(body)
        elif not self.is_known():
            self.answer(401, '{"error": "sign in first"}')
        elif not self.is_own_page():
            self.answer(403, '{"error": "this request comes from another page"}')
        else:
            self.act(body)

    def login(self, body):
        from urllib.parse import parse_qs

        given = parse_qs(body.decode('utf-8', 'replace'), keep_blank_values=True).get('password', [''])[0]
        # One guess a second, whoever guesses.
        with LOGIN:
            is_right = hmac.compare_digest(hashlib.sha256(given.encode('utf-8', 'replace')).digest(), PASSWORD)
            if not is_right:
                time.sleep(1)
        if not is_right:
            self.page(LOGIN_PAGE % (STYLE, html.escape('This is not the password.')), 401)
            return
        secure = '; Secure' if self.headers.get('x-forwarded-proto') == 'https' else ''
        cookie = 'notebook=%s; HttpOnly; SameSite=Strict; Path=/%s' % (SESSION, secure)
        self.page('', 303, [('set-cookie', cookie), ('location', '/')])

    def act(self, body):
        try:
            value = json.loads(body)
        except ValueError:
            self.answer(400, '{"error": "the body is not JSON"}')
            return
        if self.path == '/run' and isinstance(value, dict) and isinstance(value.get('code'), str):
            self.answer(200, json.dumps({'output': run(value['code'])}))
        elif self.path == '/cells' and isinstance(value, list):
            partial = CELLS + '.new'
            with open(partial, 'w', encoding='utf-8') as file:
                json.dump(value, file)
            os.replace(partial, CELLS)
            self.answer(200, '{}')
        else:
            self.answer(404, '{"error": "there is nothing here"}')

    def log_message(self, format, *args):
        pass


os.chdir(FOLDER)
ThreadingHTTPServer(('127.0.0.1', int(sys.argv[1])), Handler).serve_forever()
