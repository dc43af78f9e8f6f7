import { html, type Html } from './html.ts';

/**
 * Charts over time, drawn by chart.js, and the timing of a request. Tables beside a chart have its numbers, also
 * without scripts.
 */

export interface Series {
  readonly name: string;
  /** One value for each point; null for none. */
  readonly values: readonly (number | null)[];
  /** The formatted value of each point: "$0.42", "1,204 tokens". */
  readonly labels: readonly string[];
  /** Where a click on the name leads; absent for no link. */
  readonly href?: string;
}

export interface ChartOptions {
  /** Text alternative for screen readers. */
  readonly title: string;
  /** Bars are stacked. */
  readonly kind: 'bars' | 'lines';
  readonly unit: 'usd' | 'count' | 'share' | 'ms';
  /** Label of each point: "2026-11-23". */
  readonly points: readonly string[];
  readonly series: readonly Series[];
  /** Sums of the period before, one for each point; absent for none. */
  readonly before?: readonly (number | null)[];
  /**
   * Address to which `from` and `until`, labels of two points, are added to show only the points between them. Absent
   * if the chart enlarges them itself.
   */
  readonly zoom?: string;
}

const colours = 6;

/** The script of pages with a chart is `assets.chart`. */
export function chart({ title, series, ...drawn }: ChartOptions): Html {
  const data = { ...drawn, series: series.map(({ name, values, labels }) => ({ name, values, labels })) };
  return html`<figure class="chart" data-chart="${JSON.stringify(data)}">
    <div
      class="chart-plot"
      hidden
      tabindex="0"
      role="slider"
      aria-label="${title}"
      aria-valuemin="0"
      aria-valuemax="${Math.max(0, drawn.points.length - 1)}"
      aria-valuenow="0"
      aria-valuetext="Use the arrow keys to read the values"
    ></div>
    <p class="chart-point" hidden></p>
    <ul class="legend">
      ${series.map(
        ({ name, href }, index) =>
          html`<li>
            ${mark(index)}${href === undefined ? name : html`<a href="${href}">${name}</a>`}
            <span class="chart-value"></span>
          </li>`,
      )}
      ${drawn.before === undefined ? null : html`<li class="quiet"><span class="key before"></span>Period before <span class="chart-value"></span></li>`}
    </ul>
  </figure>`;
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
