// Lines over time, drawn by uPlot; beside each stand its newest values as text, which is what a screen reader is told.

import { html, useEffect, useMemo, useRef, useState } from "./vendor/htm-preact.js";
import { ask } from "./api.js";
import { listen } from "./live.js";
import { useDark } from "./parts.js";
import { NONE, short } from "./format.js";

const HEIGHT = 150;

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** `series`: [{label, at(row) → number}], `show`: a value as text. `data`: {times, rows}; a row is what `at` takes. */
export function Chart({ title, series, show, data, note, id }) {
  const frame = useRef(null);
  const plot = useRef(null);
  const columns = useMemo(
    () => [data.times, ...series.map(({ at }) => data.rows.map((row) => { const value = at(row); return Number.isFinite(value) ? value : null; }))],
    [data, series],
  );
  const dark = useDark();

  useEffect(() => {
    const place = frame.current;
    const axis = { stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
    plot.current = new uPlot({
      width: Math.max(200, place.clientWidth),
      height: HEIGHT,
      legend: { show: false },
      cursor: { y: false, points: { size: 6 } },
      padding: [8, 16, 0, 0],
      scales: { y: { range: (_, least, most) => [0, most > 0 ? most * 1.1 : 1] } },
      axes: [
        { ...axis, size: 24, space: 48, values: (_, ticks) => ticks.map((at) => new Date(at * 1000).toTimeString().slice(0, 5)) },
        { ...axis, size: 62, space: 32, values: (_, ticks) => ticks.map((value) => short(show(value))) },
      ],
      series: [{}, ...series.map((one, place_) => ({
        label: one.label,
        stroke: colour(`--series-${place_ % 6}`),
        width: 1.5,
        fill: series.length === 1 ? colour("--fill") : undefined,
        points: { show: false },
        spanGaps: false,
      }))],
    }, columns, place);
    const watch = new ResizeObserver(() => plot.current?.setSize({ width: Math.max(200, place.clientWidth), height: HEIGHT }));
    watch.observe(place);
    return () => {
      watch.disconnect();
      plot.current.destroy();
      plot.current = null;
    };
  }, [series, dark]);

  useEffect(() => { plot.current?.setData(columns); }, [columns]);

  const newest = series.map((_, place) => {
    const values = columns[place + 1];
    for (let at = values.length - 1; at >= Math.max(0, values.length - 30); at -= 1) if (values[at] !== null) return show(values[at]);
    return NONE;
  });
  const said = series.map(({ label }, place) => `${label} ${newest[place]}`).join(", ");
  const silent = columns.slice(1).every((values) => values.every((value) => value === null));
  return html`<figure class="card chart" aria-labelledby=${id}>
    <figcaption>
      <h3 id=${id}>${title}</h3>
      <div class="legend">${series.map(({ label }, place) => html`<span key=${label}><i class=${`dot series-${place % 6}`} aria-hidden="true"></i>${label} <b>${newest[place]}</b></span>`)}</div>
    </figcaption>
    <div class="plot" ref=${frame} role="img" aria-label=${`${title}: ${said}`}></div>
    ${silent && html`<p class="silent">${note || "Nothing was measured in this time."}</p>`}
  </figure>`;
}

const POINTS = 600;
const AGAIN_S = 300;
const MISSED_S = 2;

/** {times, rows} of the last `seconds` of one thing: history, read again now and then and where seconds were missed, as
 *  while the tab was hidden, and each second since. `pick`: a second's row of it in what the stream tells; without it
 *  there is history only. Of nothing where `of` is empty. */
export function useHistory(of, key, seconds, pick) {
  const [data, set] = useState({ times: [], rows: [] });
  useEffect(() => {
    if (!of) return undefined;
    let over = false;
    let timer;
    let heard = null;
    async function look() {
      try {
        const told = await ask("history", { of, key, seconds, points: POINTS });
        if (over) return;
        const rows = told.times.map((_, at) => told.values.map((column) => column[at]));
        set({ times: told.times, rows });
      } catch { /* the next look may find it */ }
      clearTimeout(timer);
      if (!over) timer = setTimeout(look, (pick ? AGAIN_S : 10) * 1000);
    }
    look();
    const end = pick && listen(({ second }) => {
      if (!second || document.hidden) return;
      if (heard !== null && second.second - heard > MISSED_S) look();
      heard = second.second;
      set((before) => {
        const last = before.times.at(-1) ?? 0;
        if (second.second <= last) return before;
        const row = pick(second);
        if (!row) return before;
        const from = before.times.findIndex((time) => time > second.second - seconds);
        const kept = from < 0 ? before.times.length : from;
        return { times: [...before.times.slice(kept), second.second], rows: [...before.rows.slice(kept), row] };
      });
    });
    return () => {
      over = true;
      clearTimeout(timer);
      end?.();
    };
  }, [of, key, seconds]);
  return data;
}

export const RANGES = [[300, "5 min"], [900, "15 min"], [3600, "1 h"]];

export function Range({ value, onChange }) {
  return html`<div class="choice" role="group" aria-label="Time shown">
    ${RANGES.map(([seconds, label]) => html`<button key=${seconds} type="button" aria-pressed=${value === seconds} onClick=${() => onChange(seconds)}>${label}</button>`)}
  </div>`;
}
