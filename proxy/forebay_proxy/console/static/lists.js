// All clients, all topics, what changed, the settings: tables that the server sorts, filters and pages.

import { html, useState } from "./vendor/htm-preact.js";
import { NONE, bytes, clock, count, percent } from "./format.js";
import { Card, ServerTable, Title } from "./parts.js";

const CLIENTS = [
  { key: "id", label: "Client id", sort: "client_id", show: (row) => html`<a href=${`#/client/${encodeURIComponent(row.id)}`}>${row.client_id ?? "no client id"}</a>` },
  { key: "records", label: "Records/s", sort: "records", number: true, show: (row) => count(row.records_per_second) },
  { key: "untouched", label: "Untouched", sort: "untouched", number: true, show: (row) => (Object.keys(row.batches).length ? percent(row.untouched) : NONE) },
  { key: "errors", label: "Errors", sort: "errors", number: true, show: (row) => count(row.errors) },
  { key: "open", label: "Open", sort: "connections", number: true, show: (row) => count(row.connections) },
  { key: "seen", label: "Last seen", sort: "last_seen", show: (row) => (row.connections ? "now" : clock(row.last_seen)) },
  { key: "old", label: "Kafka 4", sort: "too_old", show: (row) => (row.survives_kafka_4 ? "yes" : html`<span class=${row.bridged ? "state warning" : "state down"}>${row.bridged ? "only through Forebay" : "no"}</span>`) },
  { key: "software", label: "Software", show: (row) => (row.software_name ? `${row.software_name} ${row.software_version ?? ""}` : NONE) },
  { key: "address", label: "Address", sort: "address", show: (row) => row.address },
];

const SOME = {
  "too-old": { title: "Too old for Kafka 4", query: { too_old: 1 }, empty: "Nobody is too old for Kafka 4." },
  picking: { title: "Seem to pick partitions themselves", query: { picks: 1 }, empty: "Nobody seems to; it is looked at while Forebay observes." },
};
const ALL = { title: "Everybody who came", query: {}, empty: "Nobody has connected yet." };

export function Clients({ which }) {
  const [open, setOpen] = useState(false);
  const { title, query, empty } = SOME[which] ?? ALL;
  return html`
    <${Title}>Clients<//>
    <${Card} title=${title} id="clients" note="rates of the last half minute or minute">
      <${ServerTable} key=${which} name="clients" query=${{ ...query, open: open ? 1 : null }} columns=${CLIENTS} usual="-records" caption="Clients" what="client"
        search="Client id or address" keyOf=${(row) => row.id} empty=${empty}>
        <label class="check"><input type="checkbox" checked=${open} onChange=${(event) => setOpen(event.target.checked)} /> connected now</label>
        ${SOME[which] ? html`<a href="#/clients">all</a>` : html`<a href="#/clients/too-old">too old for Kafka 4</a>`}
      <//>
    <//>`;
}

const TOPICS = [
  { key: "topic", label: "Topic", sort: "topic", show: (row) => html`<a href=${`#/topic/${encodeURIComponent(row.topic)}`}>${row.topic}</a>` },
  { key: "partitions", label: "Partitions", sort: "partitions", number: true, show: (row) => (row.partitions ? count(row.partitions) : NONE) },
  { key: "records", label: "Records/s", sort: "records", number: true, show: (row) => count(row.records) },
  { key: "bytes", label: "Bytes/s", sort: "bytes", number: true, show: (row) => bytes(row.bytes) },
  { key: "untouched", label: "Untouched/s", sort: "untouched", number: true, show: (row) => count(row.untouched) },
  { key: "queued", label: "Queued", sort: "queued_bytes", number: true, show: (row) => bytes(row.queued_bytes) },
  { key: "skew", label: "Busiest ÷ fair", sort: "skew", number: true, show: (row) => (row.skew ? `${count(row.skew)} ×` : NONE) },
  { key: "total", label: "Records in all", number: true, show: (row) => count(row.records_total) },
];

export function Topics() {
  return html`
    <${Title}>Topics<//>
    <${Card} title="What is produced to" id="topics" note="rates of the last ten seconds">
      <${ServerTable} name="topics" columns=${TOPICS} usual="-records" caption="Topics" what="topic" search="Topic" keyOf=${(row) => row.topic}
        empty="No records have been sent yet." />
    <//>`;
}

const EVENTS = [
  { key: "at", label: "When", sort: "at", show: (row) => clock(row.at) },
  { key: "severity", label: "Severity", show: (row) => html`<span class=${`state ${row.severity}`}>${row.severity}</span>` },
  { key: "text", label: "What", wrap: true, show: (row) => (row.times > 1 ? `${row.text} (${count(row.times)} times)` : row.text) },
];

export function Events() {
  return html`
    <${Title}>Events<//>
    <${Card} title="What changed since Forebay started" id="events" note="the last 500">
      <${ServerTable} name="events" columns=${EVENTS} usual="-at" caption="Events" what="event" search="Text" keyOf=${(row) => `${row.at} ${row.text}`}
        empty="Nothing has changed." />
    <//>`;
}

function written(value) {
  if (value === null || value === "") return html`<span class="muted">empty</span>`;
  return html`<code>${typeof value === "object" ? JSON.stringify(value) : String(value)}</code>`;
}

const SETTINGS = [
  { key: "name", label: "Setting", sort: "name", show: (row) => html`<code>${row.name}</code>` },
  { key: "value", label: "Value", wrap: true, show: (row) => html`${written(row.value)}${row.unit && row.value !== null ? html` <span class="muted">${row.unit}</span>` : ""}` },
  { key: "origin", label: "From", sort: "origin", wrap: true, show: (row) => (row.expires_at ? html`<span class="state warning">override</span> until ${clock(row.expires_at)}${row.instead_of ? `, instead of ${row.instead_of}` : ""}: ${row.reason}` : row.origin) },
  { key: "changes", label: "Changes", show: (row) => row.changes },
  { key: "what", label: "What it does", wrap: true, show: (row) => row.description },
];

export function Settings() {
  return html`
    <${Title}>Settings<//>
    <${Card} title="In force" id="settings" note="of secrets only whether there is one">
      <${ServerTable} name="config" columns=${SETTINGS} usual="name" caption="Settings" what="setting" search="Setting" size=${50} seconds=${600} keyOf=${(row) => row.name}
        empty="No settings are known." />
    <//>`;
}
