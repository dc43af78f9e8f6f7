import { html, type Html } from './html.ts';

/** Stacked bar charts over time. A chart shows the shape; a table beside it has the numbers. */

export interface Series {
  readonly name: string;
  /** One value per bar. */
  readonly values: readonly number[];
  /** The formatted value of each bar: "$0.42", "1,204 tokens". */
  readonly labels: readonly string[];
}

export interface ChartOptions {
  /** Text alternative for screen readers. */
  readonly title: string;
  /** Label of each bar: "2026-11-23". */
  readonly bars: readonly string[];
  readonly series: readonly Series[];
  /** Formats a round number on the scale. */
  readonly scale: (value: number) => string;
}

/** Dimensions in units of the drawing, which stretches to the width of its container. */
const height = 160;
const barWidth = 10;
const gap = 3;
const colours = 6;

/** Returns the next of 1, 2, 5, 10, 20, 50 … at or above a value. */
function roundUp(value: number): number {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  const step = [1, 2, 5, 10].find((factor) => factor * power >= value) ?? 10;
  return step * power;
}

export function barChart({ title, bars, series, scale }: ChartOptions): Html {
  const totals = bars.map((_, index) => series.reduce((sum, { values }) => sum + (values[index] ?? 0), 0));
  const top = roundUp(Math.max(0, ...totals));
  const width = Math.max(1, bars.length) * (barWidth + gap);
  const middle = bars[Math.floor((bars.length - 1) / 2)] ?? '';
  return html`<figure class="chart">
    <div class="chart-plot">
      <div class="chart-scale" aria-hidden="true">
        <span>${scale(top)}</span><span>${scale(top / 2)}</span><span>0</span>
      </div>
      <svg viewBox="0 0 ${width} ${height}" preserveAspectRatio="none" role="img" aria-label="${title}">
        <line class="grid" x1="0" x2="${width}" y1="0.5" y2="0.5" />
        <line class="grid" x1="0" x2="${width}" y1="${height / 2}" y2="${height / 2}" />
        ${bars.map((bar, index) => stack(bar, index, series, top))}
        <line class="base" x1="0" x2="${width}" y1="${height - 0.5}" y2="${height - 0.5}" />
      </svg>
    </div>
    <div class="chart-bars" aria-hidden="true">
      <span>${bars[0] ?? ''}</span><span>${bars.length > 2 ? middle : ''}</span
      ><span>${bars.length > 1 ? (bars.at(-1) ?? '') : ''}</span>
    </div>
    <ul class="legend">
      ${series.map(({ name }, index) => html`<li><span class="key s${index % colours}"></span>${name}</li>`)}
    </ul>
  </figure>`;
}

function stack(bar: string, index: number, series: readonly Series[], top: number): Html {
  const x = index * (barWidth + gap) + gap / 2;
  let y = height;
  const parts = series.map(({ name, values, labels }, which) => {
    const tall = ((values[index] ?? 0) / top) * height;
    y -= tall;
    if (tall === 0) return html``;
    // Values above zero stay visible, however small they are.
    const shown = Math.max(tall, 1);
    return html`<rect
      class="s${which % colours}"
      x="${x}"
      y="${Math.max(0, y - (shown - tall)).toFixed(2)}"
      width="${barWidth}"
      height="${shown.toFixed(2)}"
      ><title>${bar} · ${name}: ${labels[index] ?? ''}</title></rect
    >`;
  });
  return html`<g>${parts}</g>`;
}

export interface Span {
  readonly name: string;
  readonly ms: number;
}

/** Draws the time spans of a request to scale. */
export function timelineChart(spans: readonly Span[], title: string): Html {
  const total = Math.max(
    1,
    spans.reduce((sum, { ms }) => sum + ms, 0),
  );
  const width = 1000;
  let x = 0;
  const rects = spans.map(({ name, ms }, index) => {
    const wide = (ms / total) * width;
    const from = x;
    x += wide;
    return wide === 0
      ? html``
      : html`<rect
          class="s${index % colours}"
          x="${from.toFixed(2)}"
          y="0"
          width="${Math.max(wide, 1).toFixed(2)}"
          height="28"
          ><title>${name}: ${ms} ms</title></rect
        >`;
  });
  return html`<svg
    class="timeline"
    viewBox="0 0 ${width} 28"
    preserveAspectRatio="none"
    role="img"
    aria-label="${title}"
  >
    ${rects}
  </svg>`;
}

/** Returns the color mark of a series or span. */
export function mark(index: number): Html {
  return html`<span class="key s${index % colours}"></span>`;
}
