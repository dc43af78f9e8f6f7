/** Optional extras, without which every page works: times in the reader's zone, copy buttons, one-time contents. */
(() => {
  /** @type {Intl.DateTimeFormatOptions} */
  const toMinute = {
    year: 'numeric',
    month: 'short',
    day: 'numeric',
    hour: '2-digit',
    minute: '2-digit',
  };
  const shown = new Intl.DateTimeFormat(undefined, toMinute);
  const shownWithZone = new Intl.DateTimeFormat(undefined, { ...toMinute, second: '2-digit', timeZoneName: 'short' });
  const shownToSecond = new Intl.DateTimeFormat(undefined, { ...toMinute, second: '2-digit' });

  /** @param {Element | Document} root */
  const prepare = (root) => {
    /** @type {NodeListOf<HTMLTimeElement>} */
    const times = root.querySelectorAll('time[datetime]:not([data-local])');
    for (const time of times) {
      const moment = new Date(time.dateTime);
      const format = time.dataset['seconds'] === undefined ? shown : shownToSecond;
      // Pages that filter by UTC days keep their times in UTC.
      if (time.dataset['utc'] === undefined) time.textContent = format.format(moment);
      else time.title = shownWithZone.format(moment);
      time.dataset['local'] = '';
    }
    /** @type {NodeListOf<HTMLButtonElement>} */
    const buttons = root.querySelectorAll('button[data-copy][hidden]');
    for (const button of buttons) button.hidden = false;
  };

  /**
   * Shows a text on a button for two seconds.
   * @param {HTMLButtonElement} button
   * @param {string} text
   */
  const say = (button, text) => {
    const label = button.dataset['label'] ?? button.textContent;
    button.dataset['label'] = label;
    button.textContent = text;
    setTimeout(() => {
      button.textContent = label;
    }, 2000);
  };

  /** @param {HTMLButtonElement} button */
  const copy = async (button) => {
    const source = document.getElementById(button.dataset['copy'] ?? '');
    if (source === null) return;
    try {
      await navigator.clipboard.writeText(source.textContent);
      say(button, 'Copied');
    } catch {
      // The clipboard is unavailable outside of secure contexts: select the text, for the reader to copy by hand.
      getSelection()?.selectAllChildren(source);
      say(button, 'Selected');
    }
  };

  document.addEventListener('click', ({ target }) => {
    const button = target instanceof Element ? target.closest('button[data-copy]') : null;
    if (button instanceof HTMLButtonElement) void copy(button);
  });

  // Some fields exclude each other. The field changed last applies: the fields that its `data-instead` names are reset
  // to their `data-otherwise`, their value while another field applies.
  /** @param {unknown} target @returns {target is HTMLInputElement | HTMLSelectElement} */
  const isField = (target) => target instanceof HTMLInputElement || target instanceof HTMLSelectElement;
  document.addEventListener(
    'change',
    ({ target }) => {
      if (!isField(target) || target.value === (target.dataset['otherwise'] ?? '')) return;
      for (const name of target.dataset['instead']?.split(' ') ?? []) {
        const other = target.form?.elements.namedItem(name) ?? null;
        if (isField(other)) other.value = other.dataset['otherwise'] ?? '';
      }
    },
    // Capture: runs before the same change submits the form.
    true,
  );

  // Blocks a second submit of the same form for 5 seconds. After that, a form without an answer can be sent again.
  document.addEventListener('submit', (event) => {
    const form = event.target;
    if (!(form instanceof HTMLFormElement) || form.method !== 'post' || event.defaultPrevented) return;
    if (form.dataset['sent'] === undefined) {
      form.dataset['sent'] = '';
      setTimeout(() => delete form.dataset['sent'], 5000);
    } else {
      event.preventDefault();
    }
  });
  // The browser may restore the page from its cache: allow its forms to be sent again.
  addEventListener('pageshow', () => {
    for (const form of document.forms) delete form.dataset['sent'];
  });

  // Another tab may have signed in another person, or switched to another organization.
  const { about } = document.body.dataset;
  document.addEventListener('htmx:config:request', (event) => {
    if (!(event instanceof CustomEvent)) return;
    const { ctx } = /** @type {{ ctx: { request: { headers: Record<string, string> } } }} */ (event.detail);
    // Nothing is polled while nobody sees the page.
    if (document.hidden && ctx.request.headers['X-Poll'] !== undefined) event.preventDefault();
    if (about !== undefined) ctx.request.headers['X-About'] = about;
  });

  // Restores the focus: swapping a part of the page removes the focused element.
  const focusable = 'a[href], button, input, select, textarea, summary, [tabindex]';
  /** @param {Element} element */
  const markOf = (element) => {
    const said = ['id', 'href', 'name', 'value', 'aria-label'].map((name) => element.getAttribute(name));
    return JSON.stringify([element.tagName, ...said, element.closest('form')?.getAttribute('action')]);
  };
  /** @param {string} mark @returns {HTMLElement[]} */
  const marked = (mark) => {
    /** @type {NodeListOf<HTMLElement>} */
    const all = document.querySelectorAll(focusable);
    return [...all].filter((element) => markOf(element) === mark);
  };
  /** @type {{ mark: string, index: number } | null} */
  let held = null;
  document.addEventListener('htmx:before:swap', () => {
    const element = document.activeElement;
    const isHeld = element instanceof HTMLElement && element !== document.body;
    held = isHeld ? { mark: markOf(element), index: marked(markOf(element)).indexOf(element) } : null;
  });
  document.addEventListener('htmx:after:swap', () => {
    if (held === null || document.activeElement !== document.body) return;
    const { mark, index } = held;
    marked(mark)[index]?.focus({ preventScroll: true });
  });

  // Results that are shown once: reloading the page shows the list and does not send the form again.
  const returnTo = document.body.dataset['returnTo'];
  if (returnTo !== undefined) history.replaceState(null, '', returnTo);

  prepare(document);
  new MutationObserver((changes) => {
    for (const { addedNodes } of changes) {
      for (const node of addedNodes) if (node instanceof Element) prepare(node.parentElement ?? node);
    }
  }).observe(document.body, { childList: true, subtree: true });
})();
