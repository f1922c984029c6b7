// One stream for all tabs of this page: browsers open six connections to a host, and a seventh tab would wait for ever.
// While no tab is to be seen there is none.

import { follow } from "./stream-reader.js";

const seen = new Map(); // port → whether its tab can be seen
let token = "";
let ending = null;
let newest = null;
let standing = "lost";

function tell(message) {
  for (const port of seen.keys()) port.postMessage(message);
}

function adjust() {
  const wanted = [...seen.values()].some(Boolean);
  if (wanted && !ending) {
    ending = new AbortController();
    follow(
      (second) => { newest = second; tell({ second }); },
      (state) => { standing = state; tell({ state }); },
      () => (token ? { Authorization: `Bearer ${token}` } : {}),
      ending.signal,
    );
  } else if (!wanted && ending) {
    ending.abort();
    ending = null;
  }
}

self.onconnect = ({ ports: [port] }) => {
  seen.set(port, true);
  port.onmessage = ({ data }) => {
    if (data.bye) seen.delete(port);
    if ("visible" in data) seen.set(port, data.visible);
    if (data.token && data.token !== token) { // a tab without one leaves the others theirs
      token = data.token;
      if (ending) { ending.abort(); ending = null; }
    }
    adjust();
  };
  port.postMessage({ state: standing });
  if (newest) port.postMessage({ second: newest });
};
