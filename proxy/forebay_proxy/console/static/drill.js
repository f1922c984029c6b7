// One client, topic or broker: what it does, how it is treated and why.

import { html, useMemo, useState } from "./vendor/htm-preact.js";
import { Chart, Range, useHistory } from "./charts.js";
import { NONE, bytes, clock, count, percent, time } from "./format.js";
import { Card, Explanation, Facts, Failure, Rows, ServerTable, Title, useAsked } from "./parts.js";
import { REASONS } from "./reasons.js";

const back = (href, name) => html`<p class="back"><a href=${href}>← ${name}</a></p>`;

export function Client({ name }) {
  const { data, error } = useAsked("clients", { id: name }, 5);
  const [seconds, setSeconds] = useState(900);
  const client = data?.rows[0];
  const shown = client?.client_id ?? "no client id";
  return html`
    ${back("#/clients", "Clients")}
    <${Title}>Client <span class="name">${client ? shown : ""}</span><//>
    <${Failure} error=${error} />
    ${data && !client && html`<p class="empty">This client is not known. It may have left long ago, or spoken to another Forebay.</p>`}
    ${client && html`
      <${Card} title="What it is" id="what">
        <${Facts} facts=${[
          ["Software", client.software_name ? `${client.software_name} ${client.software_version ?? ""}` : "not told"],
          ["Address", client.address],
          ["Connections", count(client.connections)],
          ["Last seen", client.connections ? "now" : clock(client.last_seen)],
          ["Records/s", count(client.records_per_second)],
          ["Records in all", count(client.records)],
          ["Errors in all", count(client.errors)],
          ["Kafka 4", client.survives_kafka_4 ? "takes it" : client.bridged ? `only through Forebay: ${client.too_old_for_kafka_4.join(", ")}` : `refuses ${client.too_old_for_kafka_4.join(", ")}`],
          ["Picks partitions", client.picks_partitions.length ? `seems so: ${client.picks_partitions.map(({ topic, used, partitions }) => `${used} of ${partitions} of ${topic}`).join(", ")}` : "not as far as is seen"],
          ["Speaks", Object.entries(client.requests).map(([api, versions]) => `${api} v${Object.keys(versions).join(", v")}`).join("; ") || NONE],
        ]} />
      <//>
      <${Treatment} batches=${client.batches} untouched=${client.untouched} />
      <${Card} title="May Forebay touch its records?" id="explain" note="what forebay explain says">
        <${Explanation} client=${client.client_id ?? ""} />
      <//>
      <div class="bar"><h2>Over time</h2><span class="grow"></span><${Range} value=${seconds} onChange=${setSeconds} /></div>
      <${Lines} of="client" own=${name} seconds=${seconds} charts=${CLIENT} />
    `}`;
}

const CLIENT = [
  { id: "k-records", title: "Records per second", show: (value) => count(value), series: [{ label: "sent", at: (row) => row[0] }] },
  { id: "k-errors", title: "Errors per second", show: (value) => count(value), series: [{ label: "errors", at: (row) => row[1] }] },
];

function Treatment({ batches, untouched }) {
  const total = Object.values(batches).reduce((sum, one) => sum + one, 0);
  const rows = Object.entries(batches).sort(([, one], [, other]) => other - one);
  return html`<${Card} title="How its batches are treated" id="treated" note=${total ? `${percent(untouched)} untouched` : ""}>
    <${Rows} caption="Batches by reason" keyOf=${([reason]) => reason} rows=${rows} sort="" empty="It has sent no records."
      columns=${[
        { key: "reason", label: "Reason", show: ([reason]) => html`<code>${reason}</code>` },
        { key: "fate", label: "Fate", show: ([reason]) => REASONS[reason]?.[0] ?? NONE },
        { key: "batches", label: "Batches", number: true, show: ([, number]) => count(number) },
        { key: "share", label: "Share", number: true, show: ([, number]) => percent(number / total) },
        { key: "why", label: "Why", wrap: true, show: ([reason]) => REASONS[reason]?.[1] ?? "" },
      ]} />
  <//>`;
}

function Lines({ of, own, seconds, charts, pick }) {
  const data = useHistory(of, own, seconds, pick);
  return html`<div class="charts">${charts.map((chart) => html`<${Chart} key=${chart.id} data=${data} ...${chart} />`)}</div>`;
}

const PARTITIONS = [
  { key: "partition", label: "Partition", sort: "partition", show: (row) => row.partition },
  { key: "leader", label: "Leader", sort: "leader", show: (row) => (row.leader < 0 ? NONE : html`<a href=${`#/broker/${row.leader}`}>${row.leader}</a>`) },
  { key: "records", label: "Records/s", sort: "records", number: true, show: (row) => count(row.records) },
  { key: "share", label: "÷ fair share", sort: "share", number: true, show: (row) => (row.share ? `${count(row.share)} ×` : NONE) },
  { key: "queued", label: "Queued", sort: "queued_bytes", number: true, show: (row) => bytes(row.queued_bytes) },
  { key: "wait", label: "Waits", sort: "wait", number: true, show: (row) => (row.wait ? time(row.wait) : NONE) },
  { key: "total", label: "Records in all", sort: "records_total", number: true, show: (row) => count(row.records_total) },
  { key: "bytes", label: "Bytes in all", sort: "bytes_total", number: true, show: (row) => bytes(row.bytes_total) },
];

export function Topic({ name }) {
  const { data, error } = useAsked("topics", { name, size: 1 }, 5);
  const [seconds, setSeconds] = useState(900);
  const topic = data?.topic;
  return html`
    ${back("#/topics", "Topics")}
    <${Title}>Topic <span class="name">${name}</span><//>
    <${Failure} error=${error} />
    ${data && !topic && html`<p class="empty">Nothing of this topic has passed since Forebay started.</p>`}
    <${Card} title="May Forebay touch its records?" id="explain" note="what forebay explain says">
      <${Explanation} topic=${name} />
    <//>
    ${topic && html`
      <${Card} title="What it gets" id="what">
        <${Facts} facts=${[
          ["Records/s", count(topic.records)],
          ["Bytes/s", bytes(topic.bytes)],
          ["Untouched records/s", count(topic.untouched)],
          ["Queued", bytes(topic.queued_bytes)],
          ["Partitions", topic.partitions ? count(topic.partitions) : NONE],
          ["Busiest partition", topic.skew ? `${count(topic.skew)} × its fair share` : NONE],
          ["Records in all", count(topic.records_total)],
          ["Untouched in all", count(topic.untouched_total)],
        ]} />
      <//>
      <div class="bar"><h2>Over time</h2><span class="grow"></span><${Range} value=${seconds} onChange=${setSeconds} /></div>
      <${Lines} of="topic" own=${name} seconds=${seconds} charts=${TOPIC} />
      <${Card} title="Partitions" id="partitions">
        <${ServerTable} name="topics" query=${{ name }} columns=${PARTITIONS} usual="partition" caption="Partitions" what="partition" size=${50} keyOf=${(row) => row.partition}
          empty="No partition is known: its records go on untouched." />
      <//>
    `}`;
}

const TOPIC = [
  { id: "t-records", title: "Records per second", show: (value) => count(value), series: [{ label: "sent", at: (row) => row[0] }] },
  { id: "t-bytes", title: "Bytes per second", show: (value) => bytes(value), series: [{ label: "sent", at: (row) => row[1] }] },
];

const BROKER = [
  { id: "b-records", title: "Records per second", show: (value) => count(value), series: [{ label: "sent", at: (row) => row[0] }] },
  { id: "b-latency", title: "Latency", show: time, series: [{ label: "p50", at: (row) => row[4] }, { label: "p99", at: (row) => row[5] }] },
  { id: "b-queued", title: "Queued for it", show: (value) => bytes(value), series: [{ label: "bytes", at: (row) => row[2] }] },
];

export function Broker({ name }) {
  const { data, error } = useAsked("brokers", { size: 200 }, 2);
  const [seconds, setSeconds] = useState(900);
  const broker = data?.rows.find((row) => String(row.node) === name);
  const pick = useMemo(() => (second) => second.brokers.find(([node]) => node === name)?.slice(1), [name]);
  return html`
    ${back("#/", "Overview")}
    <${Title}>Broker <span class="name">${name}</span><//>
    <${Failure} error=${error} />
    ${data && !broker && html`<p class="empty">No broker has this number now.</p>`}
    ${broker && html`<${Card} title="What it does" id="what">
      <${Facts} facts=${[
        ["State", broker.up ? "up" : "down: whoever last had to connect to it could not"],
        ["Records/s", count(Math.round(broker.records))],
        ["Share of all records", percent(broker.share)],
        ["Bytes/s", bytes(broker.bytes)],
        ["Queued", bytes(broker.queued_bytes)],
        ["Requests in flight", count(broker.in_flight)],
        ["Latency p50", time(broker.window_p50 || null)],
        ["Latency p99", time(broker.window_p99 || null)],
      ]} />
    <//>`}
    <div class="bar"><h2>Over time</h2><span class="grow"></span><${Range} value=${seconds} onChange=${setSeconds} /></div>
    <${Lines} of="broker" own=${name} seconds=${seconds} charts=${BROKER} pick=${pick} />`;
}
