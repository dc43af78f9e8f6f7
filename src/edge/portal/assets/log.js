/**
 * Shows new lines of a log: fetches the log every second while the page is visible, and less and less often while the
 * log cannot be read. A reader who has scrolled up keeps the scroll position.
 */
(() => {
  const everyMs = 1000;
  const pauseMaxMs = 30_000;
  const ended = 'The log could not be read. Reload the page.';
  /** @param {number} pauseMs */
  const away = (pauseMs) => `The log is unavailable. Next retry in ${pauseMs / 1000} seconds.`;

  /** @param {HTMLElement} log */
  const follow = (log) => {
    const state = log.parentElement?.querySelector('[data-log-state]') ?? null;
    const source = log.dataset['log'] ?? '';
    /** @param {string} text */
    const say = (text) => {
      if (state !== null && state.textContent !== text) state.textContent = text;
    };
    /** @param {string} text */
    const show = (text) => {
      if (log.textContent === text) return;
      const isAtEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 24;
      const from = log.scrollTop;
      log.textContent = text;
      log.scrollTop = isAtEnd ? log.scrollHeight : from;
    };
    /** @returns {Promise<'read' | 'later' | 'ended'>} */
    const read = async () => {
      if (document.hidden) return 'read';
      const answer = await fetch(source, { headers: { 'X-Poll': '1' }, redirect: 'manual', cache: 'no-store' });
      if (answer.status >= 500 || answer.status === 429) return 'later';
      const isLog = answer.headers.get('content-type')?.startsWith('text/plain') === true;
      if (!answer.ok || !isLog) return 'ended';
      show(await answer.text());
      return 'read';
    };
    let failures = 0;
    const poll = async () => {
      // The gateway or the network may be down for a moment.
      const outcome = await read().catch(() => /** @type {const} */ ('later'));
      if (outcome === 'ended') {
        say(ended);
        return;
      }
      failures = outcome === 'read' ? 0 : failures + 1;
      const pauseMs = Math.min(everyMs * 2 ** failures, pauseMaxMs);
      say(outcome === 'read' ? 'New lines appear automatically.' : away(pauseMs));
      setTimeout(() => void poll(), pauseMs);
    };
    log.scrollTop = log.scrollHeight;
    void poll();
  };

  /** @type {NodeListOf<HTMLElement>} */
  const logs = document.querySelectorAll('[data-log]');
  for (const log of logs) follow(log);
})();
