// Which view is shown, by what stands behind #; the frame around it; and the token, where one is asked for.

import { html, render, useEffect, useState } from "./vendor/htm-preact.js";
import { setToken } from "./api.js";
import { Broker, Client, Topic } from "./drill.js";
import { Clients, Events, Settings, Topics } from "./lists.js";
import { clock } from "./format.js";
import { now, start } from "./live.js";
import { Overview } from "./overview.js";
import { Title, useAsked, useNow } from "./parts.js";

const PLACES = [["", "Overview"], ["clients", "Clients"], ["topics", "Topics"], ["events", "Events"], ["settings", "Settings"]];
const UNDER = { client: "clients", topic: "topics", broker: "" };

function place() {
  const [view = "", ...rest] = location.hash.replace(/^#\/?/, "").split("/");
  try {
    return { view, name: decodeURIComponent(rest.join("/")) };
  } catch {
    return { view: "nowhere", name: "" };
  }
}

function View({ view, name, told }) {
  switch (view) {
    case "": return html`<${Overview} told=${told.data} error=${told.error} />`;
    case "clients": return html`<${Clients} key=${name} which=${name} />`;
    case "topics": return html`<${Topics} />`;
    case "events": return html`<${Events} />`;
    case "settings": return html`<${Settings} />`;
    case "client": return html`<${Client} key=${name} name=${name} />`;
    case "topic": return html`<${Topic} key=${name} name=${name} />`;
    case "broker": return html`<${Broker} key=${name} name=${name} />`;
    default: return html`<${Title}>There is no such view<//><p><a href="#/">Overview</a></p>`;
  }
}

function Login({ onDone }) {
  const [written, write] = useState("");
  function submit(event) {
    event.preventDefault();
    setToken(written.trim());
    onDone();
  }
  return html`<${Title}>A token is needed<//>
    <p>This Forebay was started with <code>admin.bearer.token</code>. The token is kept until the tabs of this page are closed.</p>
    <form class="bar" onSubmit=${submit}>
      <input type="password" autocomplete="off" aria-label="Token" placeholder="Token" value=${written} onInput=${(event) => write(event.target.value)} />
      <button type="submit">Go on</button>
    </form>`;
}

const STATES = { live: "live", lost: "no connection", denied: "no access" };

const TOLD_MS = 10_000; // within which the stream has told of everything again, if it does

/** The stream tells of everything, too, unless that is too much for it. */
function overviewIsTold() {
  return now.state === "live" && now.overview !== null && performance.now() - now.overviewAt < TOLD_MS;
}

/** Of when the numbers are, where they are not those of now. */
function asOf({ state, second }) {
  return state === "lost" && second ? `, numbers as of ${clock(second.second)}` : "";
}

function App() {
  const [at, go] = useState(place());
  const [denied, deny] = useState(false);
  const [tries, again] = useState(0);
  const heard = useNow();
  const { state, overview } = heard;
  const asked = useAsked("overview", {}, denied ? 3600 : 5, overviewIsTold);
  const told = overview && overview.second > (asked.data?.second ?? 0) ? { data: overview, error: null } : asked;
  useEffect(() => {
    const changed = () => go(place());
    const refused = () => deny(true);
    addEventListener("hashchange", changed);
    addEventListener("forebay-denied", refused);
    start();
    return () => {
      removeEventListener("hashchange", changed);
      removeEventListener("forebay-denied", refused);
    };
  }, []);
  useEffect(() => {
    const name = PLACES.find(([view]) => view === at.view)?.[1] ?? at.name;
    document.title = name && name !== "Overview" ? `${name.slice(0, 80)} – Forebay` : "Forebay";
  }, [at]);
  const current = UNDER[at.view] ?? at.view;
  return html`
    <header class="top">
      <div class="brand"><img src="icon.svg" alt="" width="24" height="24" /> Forebay</div>
      <nav aria-label="Views">${PLACES.map(([view, name]) => html`<a key=${view} href=${`#/${view}`} aria-current=${view === current ? "page" : undefined}>${name}</a>`)}</nav>
      <span class=${`live ${state}`} role="status"><i aria-hidden="true"></i>${STATES[state]}${asOf(heard)}</span>
    </header>
    <main id="main" tabindex="-1">
      ${denied
        ? html`<${Login} onDone=${() => { deny(false); start(); again(tries + 1); }} />`
        : html`<${View} key=${`${at.view} ${tries}`} ...${at} told=${told} />`}
    </main>
    <footer class="muted">Forebay ${told.data?.version ?? ""} · the same as JSON: <a href="/api/v1/overview">/api/v1</a> · <a href="/metrics">/metrics</a></footer>`;
}

const root = document.getElementById("app");
root.textContent = "";
render(html`<${App} />`, root);
