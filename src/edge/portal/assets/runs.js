/**
 * Follows the log of a run: appends new lines, and refreshes the state above them when the log ends. While the log
 * cannot be followed, retries less and less often, from the last line received.
 */
(() => {
  const log = document.getElementById('log');
  const state = document.getElementById('log-state');
  const path = log?.dataset['log'] ?? '';
  if (log === null || state === null) return;

  const shown = new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit', second: '2-digit' });
  /** @type {NodeListOf<HTMLTimeElement>} */
  const times = log.querySelectorAll('time');
  for (const time of times) time.textContent = shown.format(new Date(time.dateTime));
  log.scrollTop = log.scrollHeight;
  if (path === '') return;

  const linesMax = 5000;
  /** True if the log is scrolled to its end. Otherwise somebody reads older lines, and new lines must not move them. */
  const isAtEnd = () => log.scrollHeight - log.scrollTop - log.clientHeight < 40;

  /** @param {{ at: string, level: string, message: string }} line */
  const add = ({ at, level, message }) => {
    const follows = isAtEnd();
    const row = document.createElement('p');
    row.className = `log-line ${['info', 'warn', 'error'].includes(level) ? level : 'info'}`;
    const time = document.createElement('time');
    time.className = 'log-time';
    time.dateTime = at;
    time.title = at;
    time.dataset['local'] = '';
    time.textContent = shown.format(new Date(at));
    row.append(time, ` ${message}`);
    log.append(row);
    while (log.childElementCount > linesMax) log.firstElementChild?.remove();
    if (follows) log.scrollTop = log.scrollHeight;
  };

  const reload = document.querySelector('[data-log-reload]');
  if (reload instanceof HTMLElement) reload.hidden = true;
  state.textContent = 'New lines appear automatically.';

  /** `seq` of the last line shown. A new connection continues after it. */
  let last = log.dataset['after'] ?? '0';
  let failures = 0;
  const pauseMaxMs = 30_000;
  const address = () => `${path}?after=${last}`;

  /** @param {string} text */
  const end = (text) => {
    state.textContent = text;
    document.body.dispatchEvent(new Event('log-ended'));
  };
  /**
   * Parses the data of an event.
   * @param {Event} event
   */
  const said = (event) => {
    const text = event instanceof MessageEvent ? String(event.data) : '{}';
    return /** @type {{ at: string, level: string, message: string }} */ (JSON.parse(text));
  };

  const tryLater = () => {
    failures += 1;
    const pauseMs = Math.min(1000 * 2 ** failures, pauseMaxMs);
    state.textContent = `The log is unavailable. Next retry in ${pauseMs / 1000} seconds.`;
    setTimeout(() => void tryAgain(), pauseMs);
  };
  /**
   * Fetches the log before opening another EventSource, because an EventSource does not report the status of a failure.
   */
  const tryAgain = async () => {
    const stop = new AbortController();
    const headers = { Accept: 'text/event-stream', 'X-Poll': '1' };
    const answer = await fetch(address(), { headers, redirect: 'manual', signal: stop.signal }).catch(() => null);
    const [isOk, status] = [answer?.ok === true, answer?.status ?? 503];
    stop.abort();
    if (isOk) follow();
    else if (status >= 500 || status === 429) tryLater();
    else {
      if (reload instanceof HTMLElement) reload.hidden = false;
      end('The log could not be followed. Reload the page.');
    }
  };

  const follow = () => {
    const source = new EventSource(address());
    /** @param {string} text */
    const close = (text) => {
      source.close();
      end(text);
    };
    source.addEventListener('message', (event) => {
      add(said(event));
      last = event.lastEventId;
    });
    source.addEventListener('status', () => close('The run has ended. These are its last lines.'));
    source.addEventListener('error', (event) => {
      // The server's error event has a message. The browser's own error event only means that it retries or gave up.
      if (event instanceof MessageEvent) close(said(event).message);
      else if (source.readyState === EventSource.CLOSED) tryLater();
      else state.textContent = 'The connection was lost. Reconnecting.';
    });
    source.addEventListener('open', () => {
      failures = 0;
      state.textContent = 'New lines appear automatically.';
    });
  };
  follow();
})();
