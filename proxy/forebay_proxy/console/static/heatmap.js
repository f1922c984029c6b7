// Where records go: a row a topic, a cell a partition; its share ÷ the fair share. The same stands in a table below.

import { html, useEffect, useRef, useState } from "./vendor/htm-preact.js";
import { count } from "./format.js";
import { Failure, Pager, useAsked, useDark } from "./parts.js";

const ROW = 22;
const HEAD = 16;
const [NARROWEST, WIDEST] = [20, 100];
const GAP = 2;
const SIZE = 50;
const MOST = 64;
// Blue and red as ColorBrewer's RdBu has them, which people with any colour vision can tell apart (style.css).
const LESS = ["--less-1", "--less-2", "--less-3", "--less-4"];
const MORE = ["--more-1", "--more-2", "--more-3", "--more-4"];
const EVEN = "--even";
const BOUNDS = [1.25, 1.6, 2.2, 3];

/** The colour of a cell: 1 is fair; each step is about half as much again. */
export function shade(share) {
  const [times, scale] = share >= 1 ? [share, MORE] : [share > 0 ? 1 / share : Infinity, LESS];
  const step = BOUNDS.filter((bound) => times >= bound).length;
  return step ? scale[step - 1] : EVEN;
}

const told = (share) => (share ? `${share < 10 ? share.toFixed(2) : count(share)} ×` : "none");

export function Heatmap() {
  const [page, setPage] = useState(1);
  const [under, setUnder] = useState(null);
  const [asTable, setTable] = useState(false);
  const { data, error } = useAsked("topics", { cells: 1, size: SIZE, page }, 10);
  const canvas = useRef(null);
  const cells = useRef(null);
  const rows = data?.rows ?? [];
  const widest = Math.max(1, ...rows.map((row) => row.cells.length));

  const [cell, setCell] = useState(NARROWEST);
  const dark = useDark();

  useEffect(() => {
    const frame = cells.current;
    if (!frame) return undefined;
    const fit = () => setCell(Math.max(NARROWEST, Math.min(WIDEST, Math.floor(frame.clientWidth / widest))));
    const watch = new ResizeObserver(fit);
    watch.observe(frame);
    fit();
    return () => watch.disconnect();
  }, [widest, !data]);

  useEffect(() => {
    const place = canvas.current;
    if (!place) return;
    const ratio = devicePixelRatio || 1;
    const [width, height] = [widest * cell, rows.length * ROW + HEAD];
    place.width = width * ratio;
    place.height = height * ratio;
    place.style.width = `${width}px`;
    place.style.height = `${height}px`;
    const style = getComputedStyle(document.documentElement);
    const colours = Object.fromEntries([...LESS, ...MORE, EVEN, "--muted"].map((name) => [name, style.getPropertyValue(name).trim()]));
    const pen = place.getContext("2d");
    pen.scale(ratio, ratio);
    pen.fillStyle = colours["--muted"];
    pen.font = "11px system-ui, sans-serif";
    pen.textAlign = "center";
    for (let x = 0; x < widest; x += cell < 26 ? 2 : 1) pen.fillText(String(x), x * cell + (cell - GAP) / 2, HEAD - 5);
    rows.forEach((row, y) => row.cells.forEach((share, x) => {
      pen.fillStyle = colours[row.records ? shade(share) : EVEN];
      pen.fillRect(x * cell, y * ROW + HEAD, cell - GAP, ROW - GAP);
    }));
  }, [data, cell, dark]);

  function point(event) {
    const box = event.target.getBoundingClientRect();
    const [x, y] = [Math.floor((event.clientX - box.left) / cell), Math.floor((event.clientY - box.top - HEAD) / ROW)];
    const row = rows[y];
    setUnder(row && x < row.cells.length ? `${row.topic}, partition ${x}: ${row.records ? `${told(row.cells[x])} its fair share` : "idle"}` : null);
  }

  if (data && !data.total) return html`<p class="empty">No records have been sent yet. Topics appear here with their first batch.</p>`;
  return html`
    <${Failure} error=${error} />
    <div class="heat-key">
      <span>less than fair</span>
      ${[...[...LESS].reverse(), EVEN, ...MORE].map((name) => html`<i key=${name} class=${`swatch ${name.slice(2)}`} aria-hidden="true"></i>`)}
      <span>more</span>
      <output class="muted">${under || "Point at a cell to read it."}</output>
    </div>
    <div class="heat">
      <ol class="heat-names">${rows.map((row) => html`<li key=${row.topic}><a href=${`#/topic/${encodeURIComponent(row.topic)}`} title=${row.topic}>${row.topic}</a></li>`)}</ol>
      <div class="heat-cells" ref=${cells} tabindex="0" role="region" aria-label="Shares of partitions, by colour">
        <canvas ref=${canvas} role="img" aria-label="Each topic's partitions, coloured by their share; the table below has the numbers" onMouseMove=${point} onMouseLeave=${() => setUnder(null)}></canvas>
      </div>
    </div>
    ${rows.some((row) => row.partitions > MOST) && html`<p class="muted">The first ${MOST} partitions are shown; a topic's own page has all.</p>`}
    <${Pager} page=${page} pages=${Math.ceil((data?.total ?? 0) / SIZE)} onPage=${setPage} what="topics" />
    <button type="button" class="plain" aria-expanded=${asTable} onClick=${() => setTable(!asTable)}>${asTable ? "Hide the table" : "The same as a table"}</button>
    ${asTable && html`<div class="scroll" tabindex="0" role="region" aria-label="Shares of partitions">
      <table class="shares">
        <caption class="hidden">Each partition's share of its topic's records, as a multiple of the fair share</caption>
        <thead><tr><th scope="col">Topic</th>${Array.from({ length: widest }, (_, at) => html`<th key=${at} scope="col" class="number">${at}</th>`)}</tr></thead>
        <tbody>${rows.map((row) => html`<tr key=${row.topic}><th scope="row">${row.topic}</th>${row.cells.map((share, at) => html`<td key=${at} class="number">${row.records ? told(share) : "idle"}</td>`)}</tr>`)}</tbody>
      </table>
    </div>`}`;
}
