/**
 * Lists that sort and search in place: tables with `data-list`. `whole`: the table has all rows of the list, and its
 * headings sort it. `part`: the list has more pages, so only the rows of this page are searched, and links sort.
 */

/** Rows from which a list gets a search field. */
const searchedFrom = 6;

const numberPattern = /-?\d[\d,]*(?:\.\d+)?/;

/**
 * Returns the sort key of a cell: a number, or a text; null for a cell without a value, which comes last.
 * @param {Element | undefined} cell
 * @returns {number | string | null}
 */
function valueOf(cell) {
  const time = cell?.querySelector('time');
  if (time) return Date.parse(time.dateTime);
  const meter = cell?.querySelector('meter');
  if (meter) return meter.value;
  const text = cell?.textContent.trim() ?? '';
  if (cell?.classList.contains('number')) {
    const found = numberPattern.exec(text);
    return found === null ? null : Number(found[0].replaceAll(',', ''));
  }
  return text === '' || text === '–' ? null : text;
}

/** @param {number | string | null} a @param {number | string | null} b @param {boolean} isDescending */
function compare(a, b, isDescending) {
  if (a === null || b === null) return Number(a === null) - Number(b === null);
  const order =
    typeof a === 'number' && typeof b === 'number'
      ? a - b
      : String(a).localeCompare(String(b), undefined, { numeric: true, sensitivity: 'base' });
  return isDescending ? -order : order;
}

/** @param {HTMLTableSectionElement} body @param {number} column @param {boolean} isDescending */
function sortRows(body, column, isDescending) {
  const keyed = [...body.rows].map((row) => ({ row, value: valueOf(row.cells[column]) }));
  keyed.sort((a, b) => compare(a.value, b.value, isDescending));
  body.append(...keyed.map(({ row }) => row));
}

/**
 * Makes a button of each heading with a text. A column of actions has nothing to sort by.
 * @param {HTMLElement} list
 * @param {HTMLTableElement} table
 * @param {(text: string) => void} say
 */
function addSorting(list, table, say) {
  const [body] = table.tBodies;
  const headings = [...(table.tHead?.rows[0]?.cells ?? [])];
  if (body === undefined) return;
  list.classList.add('sortable');
  headings.forEach((heading, column) => {
    const title = heading.textContent.replace(/[↑↓]/, '').trim();
    if (title === '' || title === 'Action') return;
    const button = document.createElement('button');
    button.type = 'button';
    button.className = 'sort';
    const mark = document.createElement('span');
    mark.ariaHidden = 'true';
    mark.textContent = { ascending: '\u00A0↑', descending: '\u00A0↓' }[heading.ariaSort ?? ''] ?? '';
    button.append(title, mark);
    heading.replaceChildren(button);
    button.addEventListener('click', () => {
      const { ariaSort } = heading;
      // The first click on numbers shows the largest first, as links that sort do.
      const isDescending = ariaSort === null ? heading.classList.contains('number') : ariaSort === 'ascending';
      for (const other of headings) {
        other.ariaSort = null;
        const others = other.querySelector('span');
        if (others !== null) others.textContent = '';
      }
      heading.ariaSort = isDescending ? 'descending' : 'ascending';
      mark.textContent = isDescending ? '\u00A0↓' : '\u00A0↑';
      sortRows(body, column, isDescending);
      say(`Sorted by ${title}, ${heading.ariaSort}`);
    });
  });
}

/** @param {HTMLElement} list @param {HTMLTableElement} table @param {HTMLElement} status */
function addSearch(list, table, status) {
  const rows = [...(table.tBodies[0]?.rows ?? [])];
  const isWhole = list.dataset['list'] === 'whole';
  const field = document.createElement('input');
  field.type = 'search';
  field.autocomplete = 'off';
  field.placeholder = isWhole ? 'Search this list' : 'Search this page of the list';
  field.ariaLabel = field.placeholder;
  const texts = new Map(rows.map((row) => [row, row.textContent.toLowerCase()]));
  field.addEventListener('input', () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of rows) row.hidden = !words.every((word) => texts.get(row)?.includes(word));
    const shown = rows.filter(({ hidden }) => !hidden).length;
    status.textContent = words.length === 0 ? `${rows.length} rows` : `${shown} of ${rows.length} rows`;
  });
  status.textContent = `${rows.length} rows`;
  return field;
}

/** @param {HTMLElement} list */
function prepare(list) {
  const table = list.querySelector('table');
  if (table === null || list.dataset['ready'] !== undefined) return;
  list.dataset['ready'] = '';
  const bar = document.createElement('div');
  bar.className = 'list-search';
  const status = document.createElement('span');
  status.className = 'quiet';
  status.role = 'status';
  const count = table.tBodies[0]?.rows.length ?? 0;
  if (count >= searchedFrom) bar.append(addSearch(list, table, status));
  if (count > 1 && list.dataset['list'] === 'whole') addSorting(list, table, (text) => (status.textContent = text));
  bar.append(status);
  list.before(bar);
}

const prepareAll = () => {
  for (const list of document.querySelectorAll('[data-list]')) if (list instanceof HTMLElement) prepare(list);
};
prepareAll();
document.addEventListener('htmx:after:swap', prepareAll);
