// The first screen: one sentence, what to look at, six charts, brokers, and where records go.

import { html, useMemo, useState } from "./vendor/htm-preact.js";
import { Chart, Range, useHistory } from "./charts.js";
import { bytes, count, many, percent, time } from "./format.js";
import { Heatmap } from "./heatmap.js";
import { Card, Failure, ServerTable, useNow } from "./parts.js";

const LINKS = {
  too_old: "#/clients/too-old",
  picks_partitions: "#/clients/picking",
  broker_down: "#/events",
  workers: "#/events",
  records_refused: "#/clients",
  records_not_sent: "#/clients",
  records_expired: "#/clients",
  outcome_unknown: "#/clients",
  journal_dropped: "#/events",
  memory: "#/settings",
  reload_failed: "#/events",
};

/** What Forebay would do, where it only observes. */
function observed(totals) {
  if (!totals?.observed_batches) return "";
  const moved = totals.observed_records ? `, and move ${percent(totals.observed_moved / totals.observed_records)} of their records` : "";
  return ` It only observes ${count(totals.observed_batches)} batches/s: it would send ${count(totals.observed_sent)} instead${moved}.`;
}

/** What stands at the top, from the overview and the newest second. */
export function sentence(told, totals) {
  const { brokers, clients, added } = told;
  const parts = [
    `${count(brokers.up)} of ${many(brokers.known, "broker")}`,
    `${many(clients.connected, "client")}${clients.full ? " or more" : ""}`,
    totals && `${count(totals.records_in)} records/s in`,
    totals && `${count(totals.batches_out)} batches/s out`,
    added.p50 !== null && `adds ${time(added.p50)} / ${time(added.p99)} p50 / p99`,
  ];
  const old = clients.too_old ? `; ${many(clients.too_old, "client")} too old for Kafka 4` : "";
  return `${parts.filter(Boolean).join(", ")}${old}.${observed(totals)}`;
}

/** A broker's row with the newest second's numbers, and a share where the second tells of all brokers. */
function asOf(second, told) {
  if (!second) return (row) => row;
  const all = second.brokers.length === told.brokers.known && second.brokers.reduce((sum, [, records]) => sum + records, 0);
  const found = new Map(second.brokers.map(([node, ...numbers]) => [node, numbers]));
  return (row) => {
    const numbers = found.get(String(row.node));
    if (!numbers) return row;
    const newest = Object.fromEntries(told.columns.broker.map((name, at) => [name, numbers[at]]));
    return { ...row, ...newest, share: all ? newest.records / all : row.share };
  };
}

export function Overview({ told, error }) {
  const { second, state } = useNow();
  const [seconds, setSeconds] = useState(300);
  const names = told?.columns.totals;
  const totals = second && names ? Object.fromEntries(names.map((name, at) => [name, second.totals[at]])) : null;
  if (!told) return html`<h1 class="sentence">${error ? error.message : "Looking …"}</h1>`;
  const waiting = !told.second;
  const current = state === "live" || (!error && told.second > (second?.second ?? -1)); // asked for since, where the stream is lost
  return html`
    <h1 class="sentence">${waiting ? "Forebay has just started; numbers come in a second." : sentence(told, totals)}</h1>
    <${Problems} problems=${told.problems} current=${current} />
    <div class="bar">
      <h2>What happens</h2><span class="grow"></span>
      <${Range} value=${seconds} onChange=${setSeconds} />
    </div>
    <${Charts} columns=${told.columns} seconds=${seconds} memory=${told.memory} workers=${told.workers} />
    <${Card} title="Brokers" id="brokers" note="rates of the last second; latency of the last minute">
      <${ServerTable} name="brokers" columns=${BROKERS} usual="node" caption="Brokers" what="broker" seconds=${10} fresh=${asOf(second, told)} keyOf=${(row) => row.node}
        empty="No broker has told of itself yet." />
    <//>
    <${Card} title="Where records go" id="heat" note="each partition's share of its topic, by the last ten seconds">
      <${Heatmap} />
    <//>`;
}

function Problems({ problems, current }) {
  if (!problems.length && !current) return html`<p class="muted">Whether anything needs attention is not known.</p>`;
  if (!problems.length) return html`<p class="well"><span aria-hidden="true">✓</span> Nothing needs attention.</p>`;
  return html`<ul class="problems" aria-label="What needs attention">
    ${problems.map(({ severity, kind, text }) => html`<li key=${kind + text} class=${severity}>
      <b>${severity === "critical" ? "Critical" : "Warning"}</b>
      ${LINKS[kind] ? html`<a href=${LINKS[kind]}>${text}</a>` : text}
    </li>`)}
  </ul>`;
}

const BROKERS = [
  { key: "node", label: "Broker", sort: "node", show: (row) => html`<a href=${`#/broker/${row.node}`}>${row.node}</a>` },
  { key: "up", label: "State", sort: "up", show: (row) => html`<span class=${row.up ? "state up" : "state down"}>${row.up ? "up" : "down"}</span>` },
  { key: "records", label: "Records/s", sort: "records", number: true, show: (row) => count(Math.round(row.records)) },
  { key: "share", label: "Share", sort: "share", number: true, show: (row) => percent(row.share) },
  { key: "bytes", label: "Bytes/s", sort: "bytes", number: true, show: (row) => bytes(row.bytes) },
  { key: "queued", label: "Queued", sort: "queued_bytes", number: true, show: (row) => bytes(row.queued_bytes) },
  { key: "flight", label: "In flight", sort: "in_flight", number: true, show: (row) => count(row.in_flight) },
  { key: "p50", label: "Latency p50", number: true, show: (row) => time(row.window_p50 || null) },
  { key: "p99", label: "Latency p99", sort: "latency_p99", number: true, show: (row) => time(row.window_p99 || null) },
];

function Charts({ columns, seconds, memory, workers }) {
  const at = useMemo(() => Object.fromEntries(columns.totals.map((name, place) => [name, place])), [columns.totals.join()]);
  const data = useHistory("totals", null, seconds, (second) => second.totals);
  const of = (name) => (row) => row[at[name]];
  const charts = useMemo(() => [
    { id: "c-bytes", title: "Bytes per second", show: (value) => bytes(value), series: [{ label: "in", at: of("bytes_in") }, { label: "out", at: of("bytes_out") }] },
    { id: "c-batch", title: "Records a batch", show: (value) => count(value), note: "No batch was sent in this time.",
      series: [{ label: "out", at: (row) => (row[at.batches_out] ? row[at.records_out] / row[at.batches_out] : null) }] },
    { id: "c-added", title: "Added latency", show: time, note: "No merged request was answered in this time.",
      series: [{ label: "p50", at: of("added_p50") }, { label: "p99", at: of("added_p99") }] },
    { id: "c-pool", title: "Memory for records", show: (value) => bytes(value), series: [{ label: `used of ${bytes(memory)}`, at: of("pool_used") }] },
    { id: "c-errors", title: "Errors and retries per second", show: (value) => count(value), series: [{ label: "errors", at: of("errors") }, { label: "retries", at: of("retries") }] },
  ], [at, memory]);
  return html`<div class="charts">
    ${charts.map((chart) => html`<${Chart} key=${chart.id} data=${data} ...${chart} />`)}
    <${LoopLag} columns=${columns} seconds=${seconds} workers=${workers} all=${data} />
  </div>`;
}

const FEW = 6;

/** By worker where there are few of them, else the worst of all. */
function LoopLag({ columns, seconds, workers, all }) {
  const few = workers <= FEW;
  const place = columns.worker.indexOf("lag_p99");
  const worst = columns.totals.indexOf("lag_p99");
  const each = Array.from({ length: FEW }, (_, number) => useHistory(few && number < workers ? "worker" : "", String(number), seconds, (second) => second.workers.find(([name]) => name === String(number))?.slice(1)));
  const shown = few ? each.slice(0, workers) : [];
  const data = useMemo(() => {
    if (!few) return all;
    const byTime = shown.map(({ times, rows }) => new Map(times.map((time, index) => [time, rows[index][place]])));
    return { times: all.times, rows: all.times.map((time) => byTime.map((one) => one.get(time) ?? null)) };
  }, [all, ...each]);
  const series = useMemo(
    () => (few ? Array.from({ length: workers }, (_, number) => ({ label: `worker ${number}`, at: (row) => row[number] })) : [{ label: `worst of ${workers} workers`, at: (row) => row[worst] }]),
    [workers, few],
  );
  return html`<${Chart} id="c-lag" title="Event loop lag, p99" show=${time} series=${series} data=${data} />`;
}
