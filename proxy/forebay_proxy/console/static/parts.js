// Parts that all views are made of: what is asked again and again, tables that the server sorts and pages, facts.

import { html, useEffect, useMemo, useRef, useState } from "./vendor/htm-preact.js";
import { ask } from "./api.js";
import { count, many } from "./format.js";
import { listen, now, withNextSecond } from "./live.js";

/** The newest second's numbers; null before the first. */
export function useNow() {
  const [state, set] = useState({ ...now });
  useEffect(() => listen((told) => set({ ...told })), []);
  return state;
}

const BEFORE_MS = 500; // so that seconds of seconds are not one more

/** {data, error} of what is asked now and every `seconds` while the page can be seen, as soon as a second is told; not
 *  again while it is `told` anyway. */
export function useAsked(name, query, seconds, told = () => false) {
  const [state, set] = useState({ data: null, error: null });
  const key = JSON.stringify([name, query]);
  useEffect(() => {
    let over = false;
    let timer;
    let end = () => {};
    let known = false;
    async function look() {
      if (!document.hidden && !(known && told())) {
        try {
          const data = await ask(name, query);
          known = true;
          if (!over) set({ data, error: null });
        } catch (error) {
          if (!over) set((before) => ({ ...before, error }));
          if (error.status === 401) dispatchEvent(new Event("forebay-denied"));
        }
      }
      if (!over) timer = setTimeout(() => { end = withNextSecond(look); }, seconds * 1000 - BEFORE_MS);
    }
    look();
    return () => {
      over = true;
      clearTimeout(timer);
      end();
    };
  }, [key, seconds]);
  return state;
}

/** Whether dark is asked for; what is drawn by hand must be drawn again. */
export function useDark() {
  const query = useMemo(() => matchMedia("(prefers-color-scheme: dark)"), []);
  const [dark, set] = useState(query.matches);
  useEffect(() => {
    const changed = () => set(query.matches);
    query.addEventListener("change", changed);
    return () => query.removeEventListener("change", changed);
  }, []);
  return dark;
}

/** What somebody types, once they have paused. */
function useTyped(usual) {
  const [typed, type] = useState(usual);
  const [settled, settle] = useState(usual);
  useEffect(() => {
    const timer = setTimeout(() => settle(typed), 250);
    return () => clearTimeout(timer);
  }, [typed]);
  return [typed, type, settled];
}

export function Failure({ error }) {
  return error ? html`<p class="failure" role="alert">${error.message}</p>` : null;
}

/** Columns: {key, label, show(row), sort, number}. `sort` is what the server sorts by; without it the column cannot be. */
export function Rows({ columns, rows, sort, onSort, caption, empty, keyOf }) {
  if (!rows.length) return html`<p class="empty">${empty}</p>`;
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${`Table: ${caption}`}>
    <table>
      <caption class="hidden">${caption}</caption>
      <thead>
        <tr>${columns.map((column) => html`<${Heading} key=${column.key} column=${column} sort=${sort} onSort=${onSort} />`)}</tr>
      </thead>
      <tbody>
        ${rows.map((row) => html`<tr key=${keyOf(row)}>
          ${columns.map((column, place) => place
            ? html`<td class=${column.number ? "number" : column.wrap ? "" : "short"}>${column.show(row)}</td>`
            : html`<th scope="row" class=${column.number ? "number" : ""}>${column.show(row)}</th>`)}
        </tr>`)}
      </tbody>
    </table>
  </div>`;
}

function Heading({ column, sort, onSort }) {
  const side = column.number ? "number" : "";
  if (!column.sort || !onSort) return html`<th scope="col" class=${side}>${column.label}</th>`;
  const [own, down] = [sort.replace(/^-/, "") === column.sort, sort.startsWith("-")];
  const next = own ? (down ? column.sort : `-${column.sort}`) : column.number ? `-${column.sort}` : column.sort;
  return html`<th scope="col" class=${side} aria-sort=${own ? (down ? "descending" : "ascending") : "none"}>
    <button type="button" onClick=${() => onSort(next)}>${column.label}<span class="arrow" aria-hidden="true">${own ? (down ? "▼" : "▲") : ""}</span></button>
  </th>`;
}

/** A table of the server's: it sorts, filters and pages. `fresh` makes what it told of a row what is known by now. */
export function ServerTable({ name, query = {}, columns, usual, caption, what, search, empty, size = 25, seconds = 5, keyOf, fresh = (row) => row, children }) {
  const [sort, setSort] = useState(usual);
  const [page, setPage] = useState(1);
  const [typed, type, text] = useTyped("");
  useEffect(() => setPage(1), [text, sort, JSON.stringify(query)]);
  const { data, error } = useAsked(name, { ...query, sort, page, size, q: text || null }, seconds);
  const total = data?.total ?? 0;
  return html`
    ${(search || children) && html`<div class="bar">
      ${search && html`<input type="search" aria-label=${search} placeholder=${search} value=${typed} onInput=${(event) => type(event.target.value)} />`}
      ${children}
      <span class="grow"></span>
      <span class="muted" aria-live="polite">${data ? many(total, what) : ""}</span>
    </div>`}
    <${Failure} error=${error} />
    ${data && html`<${Rows} columns=${columns} rows=${data.rows.map(fresh)} sort=${sort} onSort=${setSort} caption=${caption} keyOf=${keyOf}
      empty=${text ? `Nothing holds “${text}”.` : empty} />`}
    <${Pager} page=${page} pages=${Math.ceil(total / size)} onPage=${setPage} what=${caption} />`;
}

export function Pager({ page, pages, onPage, what }) {
  if (pages <= 1) return null;
  return html`<nav class="pager" aria-label=${`Pages of ${what}`}>
    <button type="button" disabled=${page <= 1} onClick=${() => onPage(page - 1)}>Previous</button>
    <span>Page ${count(page)} of ${count(pages)}</span>
    <button type="button" disabled=${page >= pages} onClick=${() => onPage(page + 1)}>Next</button>
  </nav>`;
}

/** Pairs of a name and a value; what has no value is left out. */
export function Facts({ facts }) {
  return html`<dl class="facts">
    ${facts.filter(([, value]) => value !== null && value !== undefined).map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}
  </dl>`;
}

export function Card({ title, note, children, wide, id }) {
  return html`<section class=${wide ? "card wide" : "card"} aria-labelledby=${id}>
    <div class="head"><h2 id=${id}>${title}</h2>${note && html`<span class="muted">${note}</span>`}</div>
    ${children}
  </section>`;
}

/** The view's heading takes the focus when somebody has come by a link, so that a keyboard goes on from there. */
export function Title({ children }) {
  const own = useRef(null);
  useEffect(() => own.current?.focus({ preventScroll: true }), []);
  return html`<h1 tabindex="-1" ref=${own}>${children}</h1>`;
}

/** What `forebay explain` says of a client id and a topic. */
export function Explanation({ client, topic }) {
  const [written, write] = useState(topic || "");
  const [asked, askFor] = useState(topic || "");
  const { data, error } = useAsked(asked ? "explain" : "overview", asked ? { topic: asked, client_id: client } : {}, 60);
  return html`
    ${!topic && html`<form class="bar" onSubmit=${(event) => { event.preventDefault(); askFor(written); }}>
      <input aria-label="Topic" placeholder="Topic" value=${written} onInput=${(event) => write(event.target.value)} />
      <button type="submit">Explain</button>
    </form>`}
    <${Failure} error=${error} />
    ${asked && data?.text && html`<pre class="explained">${data.text}</pre>`}`;
}
