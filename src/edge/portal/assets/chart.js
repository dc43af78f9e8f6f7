import uPlot from './uplot.js';

/**
 * Draws the charts of a page, also those that are loaded later. The pointer and the arrow keys read values, a click
 * shows one day, and dragging, or Shift with the arrow keys and then Enter, enlarges a span.
 *
 * @typedef {{ name: string, values: (number | null)[], labels: string[] }} Series
 * @typedef {{
 *   kind: 'bars' | 'lines', unit: 'usd' | 'count' | 'share' | 'ms', points: string[], series: Series[],
 *   before?: (number | null)[], zoom?: string,
 * }} Chart
 */

const height = 220;
const short = new Intl.NumberFormat('en-US', { notation: 'compact', maximumSignificantDigits: 3 });

/** @type {Record<Chart['unit'], (value: number) => string>} */
const formats = {
  usd: (value) => `$${short.format(value)}`,
  count: (value) => short.format(value),
  share: (value) => `${Math.round(value * 100)} %`,
  ms: (value) => (value < 1000 ? `${short.format(value)} ms` : `${short.format(value / 1000)} s`),
};

/** @param {string} name */
const colourOf = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/**
 * Returns the values of each series, for stacked bars with all that is below them.
 * @param {Chart} chart
 */
function heightsOf({ kind, series }) {
  if (kind === 'lines') return series.map(({ values }) => values);
  const below = series[0]?.values.map(() => 0) ?? [];
  return series.map(({ values }) => values.map((value, at) => (below[at] = (below[at] ?? 0) + (value ?? 0))));
}

/**
 * Returns the points between two gaps, which no line shows; null if all points are drawn anyway.
 * @param {uPlot} plot @param {number} which @param {boolean} isShown
 * @returns {number[] | null}
 */
function lonely({ data }, which, isShown) {
  if (isShown) return null;
  const values = data[which] ?? [];
  const isGap = (/** @type {number} */ at) => (values[at] ?? null) === null;
  return [...values.keys()].filter((at) => !isGap(at) && isGap(at - 1) && isGap(at + 1));
}

/**
 * Returns the series of uPlot. The highest bars are drawn first, behind the lower ones.
 * @param {Chart} chart
 * @returns {{ data: (number | null)[][], series: uPlot.Series[] }}
 */
function drawingOf(chart) {
  const { kind, before, series } = chart;
  const bars = uPlot.paths.bars?.({ size: [0.75, 60] });
  /** @param {string} colour @returns {uPlot.Series} */
  const bar = (colour) => ({ fill: colour, width: 0, points: { show: false }, ...(bars && { paths: bars }) });
  /** @param {string} colour @returns {uPlot.Series} */
  const line = (colour) => ({ stroke: colour, width: 2, points: { size: 5, fill: colour, filter: lonely } });
  const drawn = heightsOf(chart).map((values, at) => {
    const colour = colourOf(`--s${at % 6}`);
    return { values, series: kind === 'bars' ? bar(colour) : line(colour) };
  });
  const shadow = uPlot.paths.bars?.({ size: [1, Infinity] });
  const all = [
    ...(before === undefined || series.length === 0
      ? []
      : [{ values: before, series: { ...bar(colourOf('--line')), ...(shadow && { paths: shadow }) } }]),
    ...(kind === 'bars' ? drawn.toReversed() : drawn),
  ];
  return { data: all.map(({ values }) => values), series: all.map((one) => one.series) };
}

/**
 * Returns the options of uPlot, except for its hooks.
 * @param {Chart} chart @param {uPlot.Series[]} series
 * @returns {Omit<uPlot.Options, 'width'>}
 */
function optionsOf({ points, kind, unit }, series) {
  const axis = { stroke: colourOf('--soft'), grid: { stroke: colourOf('--line'), width: 1 }, ticks: { show: false } };
  return {
    height,
    legend: { show: false },
    scales: {
      x: { time: false, range: (_, min, max) => [min, max] },
      y: { range: (_, _min, max) => [0, max > 0 ? max * 1.05 : 1] },
    },
    axes: [
      {
        ...axis,
        grid: { show: false },
        incrs: [1, 2, 5, 7, 10, 14, 30, 60, 90, 180, 365],
        space: 90,
        values: (_, splits) => splits.map((split) => points[split] ?? ''),
      },
      {
        ...axis,
        size: (_, labels) => 20 + 7 * Math.max(4, ...(labels ?? []).map(({ length }) => length)),
        values: (_, splits) => splits.map((split) => formats[unit](split)),
      },
    ],
    series: [{}, ...series],
    cursor: { y: false, points: { show: kind === 'lines' }, drag: { x: true, y: false, setScale: false } },
  };
}

/**
 * Returns what shows the values of a point, in the legend and for screen readers.
 * @param {HTMLElement} figure @param {HTMLElement} place @param {Chart} chart
 */
function readerOf(figure, place, { points, series, before, unit }) {
  const head = figure.querySelector('.chart-point');
  const values = figure.querySelectorAll('.legend .chart-value');
  if (head instanceof HTMLElement) head.hidden = false;
  /** @param {number} index */
  return (index) => {
    const label = points[index] ?? '';
    const texts = series.map(({ labels }) => labels[index] ?? '');
    const earlier = before?.[index] ?? null;
    const all = [...texts, earlier === null ? '' : formats[unit](earlier)];
    if (head !== null) head.textContent = label;
    for (const [which, one] of values.entries()) one.textContent = all[which] ?? '';
    const named = series.map(({ name }, which) => `${name} ${texts[which] || 'none'}`);
    place.setAttribute('aria-valuenow', String(index));
    place.setAttribute('aria-valuetext', `${label}: ${named.join(', ')}`);
  };
}

/** @param {uPlot} plot @param {Chart} chart */
const showAll = (plot, { points }) => plot.setScale('x', { min: -0.5, max: points.length - 0.5 });

/** @param {uPlot} plot */
const unselect = (plot) => plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);

/**
 * Shows only the points from one to another: on a page of their own, or larger.
 * @param {uPlot} plot @param {Chart} chart @param {number} from @param {number} until
 */
function zoom(plot, { points, zoom: address }, from, until) {
  const first = Math.max(0, Math.min(from, until));
  const last = Math.min(points.length - 1, Math.max(from, until));
  if (address === undefined) {
    plot.setScale('x', { min: first - 0.5, max: last + 0.5 });
    return;
  }
  const url = new URL(address, location.href);
  url.searchParams.set('range', 'dates');
  url.searchParams.set('from', points[first] ?? '');
  url.searchParams.set('until', points[last] ?? '');
  location.assign(url);
}

const steps = new Map([
  ['ArrowLeft', -1],
  ['ArrowRight', 1],
  ['PageDown', -7],
  ['PageUp', 7],
  ['Home', -Infinity],
  ['End', Infinity],
]);

/**
 * Returns the listener for keys. The position is that of the pointer too.
 * @param {uPlot} plot @param {Chart} chart @param {{ at: number }} position @param {(index: number) => void} read
 */
function keysOf(plot, chart, position, read) {
  /** The point where a selection with Shift began. @type {number | null} */
  let begin = null;
  /** @param {number} step @param {boolean} selects */
  const move = (step, selects) => {
    begin = selects ? (begin ?? position.at) : null;
    const next = Math.min(chart.points.length - 1, Math.max(0, position.at + step));
    plot.setCursor({ left: plot.valToPos(next, 'x'), top: 0 });
    position.at = next;
    read(next);
    const ends = [begin ?? next, next].map((index) => plot.valToPos(index, 'x'));
    const [left, right] = [Math.min(...ends), Math.max(...ends)];
    plot.setSelect({ left, top: 0, width: right - left, height: plot.over.clientHeight }, false);
  };
  /** @param {KeyboardEvent} event */
  return (event) => {
    const step = steps.get(event.key);
    if (step !== undefined) move(step, event.shiftKey);
    else if (event.key === 'Enter' && (begin !== null || chart.zoom !== undefined)) {
      zoom(plot, chart, begin ?? position.at, position.at);
    } else if (event.key === 'Escape') {
      begin = null;
      unselect(plot);
      showAll(plot, chart);
    } else return;
    event.preventDefault();
  };
}

/** @param {HTMLElement} figure @param {Chart} chart */
function draw(figure, chart) {
  const place = figure.querySelector('.chart-plot');
  if (!(place instanceof HTMLElement)) return null;
  place.hidden = false;
  const read = readerOf(figure, place, chart);
  const position = { at: chart.points.length - 1 };
  const { data, series } = drawingOf(chart);
  const width = () => Math.max(200, place.clientWidth);
  /** @type {uPlot.Options['hooks']} */
  const hooks = {
    setCursor: [
      ({ cursor: { idx } }) => {
        if (idx === null || idx === undefined) return;
        position.at = idx;
        read(idx);
      },
    ],
    setSelect: [
      (self) => {
        const { left, width: wide } = self.select;
        if (wide < 4) return;
        zoom(self, chart, self.posToIdx(left), self.posToIdx(left + wide));
        unselect(self);
      },
    ],
  };
  const points = chart.points.map((_, index) => index);
  const options = { ...optionsOf(chart, series), width: width(), hooks };
  const plot = new uPlot(options, /** @type {uPlot.AlignedData} */ ([points, ...data]), place);
  showAll(plot, chart);

  let pressedAt = 0;
  plot.over.addEventListener('mousedown', ({ clientX }) => (pressedAt = clientX));
  plot.over.addEventListener('click', ({ clientX }) => {
    const isClick = Math.abs(clientX - pressedAt) < 4;
    if (isClick && chart.zoom !== undefined) zoom(plot, chart, position.at, position.at);
  });
  plot.over.addEventListener('dblclick', () => showAll(plot, chart));
  const press = keysOf(plot, chart, position, read);
  place.addEventListener('keydown', press);
  const sizes = new ResizeObserver(() => plot.setSize({ width: width(), height }));
  sizes.observe(place);
  return () => {
    sizes.disconnect();
    place.removeEventListener('keydown', press);
    plot.destroy();
  };
}

/** @type {Map<HTMLElement, () => void>} */
const drawn = new Map();

function drawAll() {
  for (const [figure, end] of drawn) {
    if (figure.isConnected) continue;
    end();
    drawn.delete(figure);
  }
  /** @type {NodeListOf<HTMLElement>} */
  const figures = document.querySelectorAll('figure[data-chart]');
  for (const figure of figures) {
    if (drawn.has(figure)) continue;
    const chart = /** @type {Chart} */ (JSON.parse(figure.dataset['chart'] ?? ''));
    const end = draw(figure, chart);
    if (end !== null) drawn.set(figure, end);
  }
}

drawAll();
new MutationObserver(drawAll).observe(document.body, { childList: true, subtree: true });
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
  for (const end of drawn.values()) end();
  drawn.clear();
  drawAll();
});
