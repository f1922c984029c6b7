// What happens each second, for whoever listens: from the stream that all tabs share, or one of this tab's own.

import { headers, token } from "./api.js";
import { follow } from "./stream-reader.js";

const listeners = new Set();
export const now = { second: null, overview: null, overviewAt: 0, state: "lost" };

function hear({ second, state }) {
  if (state) now.state = state;
  if (second) now.second = second;
  if (second?.overview) Object.assign(now, { overview: second.overview, overviewAt: performance.now() });
  for (const listener of listeners) listener(now);
}

/** Returns what ends it. */
export function listen(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

const SILENT_MS = 2000;

/** Calls `then` once the next second is told, or SILENT_MS later: what is asked for together keeps Forebay from its
 *  producers once a second, and not here and there. Returns what ends it. */
export function withNextSecond(then) {
  const over = () => {
    clearTimeout(timer);
    forget();
  };
  const once = () => {
    over();
    then();
  };
  const timer = setTimeout(once, SILENT_MS);
  const before = now.second;
  const forget = listen(({ second }) => second !== before && once());
  return over;
}

let port = null;
let ending = null;

function own() {
  if (document.hidden) {
    ending?.abort();
    ending = null;
  } else if (!ending) {
    ending = new AbortController();
    follow((second) => hear({ second }), (state) => hear({ state }), () => headers(), ending.signal);
  }
}

export function start() {
  if (port || ending) {
    port?.postMessage({ token: token() });
    return;
  }
  if (typeof SharedWorker === "undefined") {
    own();
    document.addEventListener("visibilitychange", own);
    return;
  }
  port = new SharedWorker("worker.js", { type: "module", name: "forebay" }).port;
  port.onmessage = ({ data }) => hear(data);
  port.start();
  port.postMessage({ token: token(), visible: !document.hidden });
  document.addEventListener("visibilitychange", () => port.postMessage({ visible: !document.hidden }));
  addEventListener("pagehide", () => port.postMessage({ bye: true }));
  addEventListener("pageshow", () => port.postMessage({ visible: !document.hidden }));
}
