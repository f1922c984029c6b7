// Server-sent events over fetch, which can carry a token where EventSource cannot.

const SILENT_MS = 5000; // Forebay tells of each second

/** Calls `tell` with each second's numbers until `signal` ends it; connects again after `pause` ms, from the last second
 *  on, also where nothing has come for SILENT_MS: a Forebay that hangs closes no connection. */
export async function follow(tell, state, headers, signal, pause = 2000) {
  let last = 0;
  while (!signal.aborted) {
    const ending = new AbortController();
    const end = () => ending.abort();
    signal.addEventListener("abort", end);
    const wait = () => setTimeout(end, SILENT_MS);
    let timer = wait();
    try {
      const answer = await fetch(`/api/v1/stream${last ? `?after=${last}` : ""}`, { headers: headers(), signal: ending.signal });
      if (!answer.ok) {
        state(answer.status === 401 ? "denied" : "lost");
      } else {
        state("live");
        const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
        let rest = "";
        for (;;) {
          const { value, done } = await reader.read();
          if (done) break;
          clearTimeout(timer);
          timer = wait();
          const lines = (rest + value).split("\n");
          rest = lines.pop();
          for (const line of lines) {
            if (line.startsWith("data: ")) {
              const told = JSON.parse(line.slice(6));
              last = told.second;
              tell(told);
            }
          }
        }
        state("lost");
      }
    } catch {
      if (signal.aborted) return;
      state("lost");
    } finally {
      clearTimeout(timer);
      signal.removeEventListener("abort", end);
    }
    await new Promise((resolve) => setTimeout(resolve, pause));
  }
}
