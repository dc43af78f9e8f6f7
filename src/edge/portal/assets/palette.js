/**
 * Ctrl K opens the search in a dialog, and `/` focuses the search of the page. The results are those of the search page,
 * which works without scripts.
 */
(() => {
  const link = document.querySelector('a[data-palette]');
  if (!(link instanceof HTMLAnchorElement)) return;
  const { about = '' } = document.body.dataset;

  const dialog = document.createElement('dialog');
  dialog.className = 'palette';
  dialog.setAttribute('aria-label', 'Search');
  const field = document.createElement('input');
  field.type = 'search';
  field.autocomplete = 'off';
  field.maxLength = 200;
  field.placeholder = 'Name, or id of a request';
  field.setAttribute('aria-label', 'Search pages, models, keys, stacks and requests');
  const found = document.createElement('div');
  dialog.append(field, found);
  // On the page only while it is open, so that nothing finds its field meanwhile.
  dialog.addEventListener('close', () => dialog.remove());

  /** @returns {HTMLElement[]} */
  const links = () => [...found.querySelectorAll('a')];
  let asked = 0;

  const search = async () => {
    asked += 1;
    const mine = asked;
    const answer = await fetch(`${link.href}?${new URLSearchParams({ q: field.value })}`, {
      headers: { Accept: 'text/html', 'X-About': about },
      redirect: 'manual',
    }).catch(() => null);
    // A session that ended, or another organization: the page itself shows why.
    if (answer === null || !answer.ok) return location.assign(link.href);
    const text = await answer.text();
    if (mine !== asked) return undefined;
    const shown = new DOMParser().parseFromString(text, 'text/html').getElementById('found');
    found.replaceChildren(...(shown?.childNodes ?? []));
    return undefined;
  };

  const open = () => {
    if (dialog.open) return;
    field.value = '';
    document.body.append(dialog);
    dialog.showModal();
    field.focus();
    void search();
  };

  let typed = 0;
  field.addEventListener('input', () => {
    clearTimeout(typed);
    typed = setTimeout(() => void search(), 120);
  });
  dialog.addEventListener('click', ({ target }) => {
    if (target === dialog) dialog.close();
  });
  dialog.addEventListener('keydown', (event) => {
    const all = links();
    const at = all.findIndex((one) => one === document.activeElement);
    if (event.key === 'ArrowDown') (all[Math.min(at + 1, all.length - 1)] ?? field).focus();
    else if (event.key === 'ArrowUp') (at < 1 ? field : all[at - 1])?.focus();
    // A search field would only clear itself.
    else if (event.key === 'Escape') dialog.close();
    else if (event.key === 'Enter' && document.activeElement === field) all[0]?.click();
    else return;
    event.preventDefault();
  });
  link.addEventListener('click', (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    open();
  });

  document.addEventListener('keydown', (event) => {
    if (event.key.toLowerCase() === 'k' && (event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey) {
      event.preventDefault();
      open();
      return;
    }
    const { target } = event;
    const isTyping = target instanceof HTMLElement && target.matches('input, textarea, select, [contenteditable]');
    if (event.key !== '/' || event.ctrlKey || event.metaKey || event.altKey || isTyping || dialog.open) return;
    event.preventDefault();
    const own = document.querySelector('main input[type="search"]');
    if (own instanceof HTMLInputElement) own.focus();
    else open();
  });
})();
