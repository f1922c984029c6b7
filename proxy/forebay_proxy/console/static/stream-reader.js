// Server-sent events over fetch, which can carry a token where EventSource cannot.

/** Calls `tell` with each second's numbers until `signal` ends it; connects again after `pause` ms, from the last second on. */
export async function follow(tell, state, headers, signal, pause = 2000) {
  let last = 0;
  while (!signal.aborted) {
    try {
      const answer = await fetch(`/api/v1/stream${last ? `?after=${last}` : ""}`, { headers: headers(), signal });
      if (!answer.ok) {
        state(answer.status === 401 ? "denied" : "lost");
      } else {
        state("live");
        const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
        let rest = "";
        for (;;) {
          const { value, done } = await reader.read();
          if (done) break;
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
    }
    await new Promise((resolve) => setTimeout(resolve, pause));
  }
}
