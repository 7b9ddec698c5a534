// The drawer with all that is known of one queue pair.

import { get } from "./api.js";
import { TimeChart } from "./chart.js";
import { byId, h, setAttribute, setText } from "./dom.js";
import * as format from "./format.js";
import { Ladder } from "./ladder.js";

const WINDOW = 120_000;

function facts(detail) {
  const { qp } = detail;
  const known = (value, show = String) => (value == null ? "–" : show(value));
  return [
    ["Process", `${detail.process} ${detail.pid}`],
    ["Device", `${detail.device}${detail.address ? ` · ${detail.address}` : ""}`],
    ["Peer", qp.remote_address ? `${qp.remote_address} · QP ${format.qpn(qp.remote_number)}` : "not connected"],
    ["Path", qp.link === "none" ? "–" : `${qp.link}, MTU ${qp.path_mtu}`],
    ["Next PSN", `SQ ${format.qpn(qp.sq_psn)} · RQ ${format.qpn(qp.rq_psn)}`],
    ["Send queue", `${format.whole(qp.send_outstanding)} outstanding of ${format.whole(qp.max_send_wr)}`],
    ["Receive queue", qp.shared_receive_queue == null ? `${format.whole(qp.recv_outstanding)} posted of ${format.whole(qp.max_recv_wr)}` : `SRQ ${qp.shared_receive_queue}`],
    ["In flight", `${format.whole(qp.in_flight_packets)} packets, ${format.memory(qp.in_flight_bytes)}`],
    ["Completions", `${format.whole(qp.send_completions)} send, ${format.whole(qp.recv_completions)} receive`],
    ["Last error", qp.last_reason == null ? known(qp.last_error) : `${qp.last_reason.text} (vendor_err ${qp.last_reason.number}, ${format.duration(qp.last_reason.age_seconds)} ago)`],
    ["Created", `${format.duration(qp.age_seconds)} ago`],
    ["Last packet", known(qp.idle_seconds, (seconds) => (seconds < 1 ? "just now" : `${format.duration(seconds)} ago`))],
  ];
}

function trafficRows(qp) {
  const rows = [];
  for (const operation of Object.keys(qp.tx.operations)) {
    const [tx, rx] = [qp.tx.operations[operation], qp.rx.operations[operation]];
    if (tx.packets + rx.packets > 0) {
      rows.push([operation.toUpperCase(), format.whole(tx.packets), format.memory(tx.bytes), format.whole(rx.packets), format.memory(rx.bytes)]);
    }
  }
  return rows;
}

function counterRows(qp) {
  const named = (counters, prefix = "") => Object.entries(counters).map(([name, value]) => [prefix + name, value]);
  const all = [...named(qp.counters), ...named(qp.naks_received, "NAK received: "), ...named(qp.naks_sent, "NAK sent: "), ["completion_errors", qp.completion_errors]];
  return all.filter(([, value]) => value > 0);
}

// The distribution of latencies, as bars of equal width on a logarithmic axis.
function histogram(latency) {
  const most = Math.max(1, ...latency.buckets.map((bucket) => bucket.count));
  const bars = latency.buckets.map((bucket) => {
    const bar = h("i", { title: `${format.nanos(bucket.from_ns)} to ${format.nanos(bucket.to_ns)}: ${format.whole(bucket.count)}` });
    bar.style.height = `${Math.max(2, (bucket.count / most) * 100)}%`;
    return bar;
  });
  const ends = latency.buckets.length > 0 ? [format.nanos(latency.buckets[0].from_ns), format.nanos(latency.buckets.at(-1).to_ns)] : ["", ""];
  return h("div", { class: "histogram" }, h("div", { class: "columns" }, ...bars), h("div", { class: "ends quiet" }, h("span", { text: ends[0] }), h("span", { text: ends[1] })));
}

const table = (head, rows) =>
  h("table", { class: "small" }, h("thead", {}, h("tr", {}, ...head.map((text, index) => h("th", { text, class: index > 0 ? "number" : "" })))), h("tbody", {}, ...rows.map((row) => h("tr", {}, ...row.map((text, index) => h("td", { text, class: index > 0 ? "number" : "" }))))));

const quiet = (text) => h("p", { class: "quiet", text });

function traffic({ qp }) {
  const rows = trafficRows(qp);
  return rows.length > 0 ? [table(["Operation", "Packets sent", "Payload", "Packets received", "Payload"], rows)] : [quiet("No packet was sent or received.")];
}

function latencies({ qp: { latency } }) {
  if (latency.samples === 0) return [quiet("No request was measured: UD and UC have no acknowledgements, and a responder sends no requests.")];
  const quantile = (name) => [h("span", { class: "quiet", text: name.replace("999", "99.9") }), h("b", { text: format.nanos(latency[`${name}_ns`]) })];
  return [h("p", { class: "quantiles" }, ...["p50", "p90", "p99", "p999"].flatMap(quantile)), histogram(latency)];
}

function counters({ qp }) {
  const rows = counterRows(qp).map(([name, value]) => [name, format.whole(value)]);
  return rows.length > 0 ? [table(["Counter", "Value"], rows)] : [quiet("All error and recovery counters are zero.")];
}

// The sections below the facts: heading, and the function that returns the elements for the answer of /api/qp.
const SECTIONS = [
  ["Traffic", traffic],
  ["Latency of requests", latencies],
  ["Counters", counters],
];

export class Detail {
  constructor({ historyOf }) {
    this.historyOf = historyOf;
    this.dialog = byId("detail");
    this.dialog.addEventListener("close", () => (this.key = null));
    this.dialog.addEventListener("click", (event) => event.target === this.dialog && this.dialog.close());
  }

  open(key, anomaly) {
    Object.assign(this, { key, focused: null, gone: null });
    this.title = h("h2", { text: `QP ${format.qpn(Number(key.split("/").at(-1)))}` });
    this.state = h("span", { class: "pill" });
    this.note = h("p", { class: "problem", hidden: true });
    this.facts = h("dl", { class: "facts" });
    this.ladder = new Ladder(key, anomaly != null);
    this.chart = new TimeChart({
      title: "Payload",
      kind: "mirror",
      format: format.bits,
      focus: (share) => ((this.focused = share), this.drawChart()),
      series: [{ key: "tx", label: "sent", tone: "tx" }, { key: "rx", label: "received", tone: "rx" }],
    });
    this.sections = SECTIONS.map(([title]) => h("section", { hidden: true, "aria-label": title }));
    const why = anomaly && h("p", { class: `why ${anomaly.severity}` }, h("b", { text: `${anomaly.title} × ${format.whole(anomaly.count)}` }), ` at ${format.clock(anomaly.last)}. ${anomaly.meaning}`);
    const close = h("button", { type: "button", class: "plain", text: "Close", onclick: () => this.dialog.close() });
    this.dialog.replaceChildren(
      h("div", { class: "bar" }, this.title, this.state, h("div", { class: "grow" }), close),
      h("div", { class: "body" }, why, this.note, this.chart.element, this.facts, this.ladder.element, ...this.sections),
    );
    if (!this.dialog.open) this.dialog.showModal();
    this.refresh();
  }

  // Returns the time of the newest point.
  drawChart() {
    const history = this.historyOf(this.key);
    const newest = history.at(-1)?.time ?? 0;
    const to = newest || Date.now();
    this.chart.show(history, to - WINDOW, to, this.focused);
    return newest;
  }

  async refresh() {
    const { key } = this;
    if (!key) return;
    const newest = this.drawChart();
    this.ladder.refresh();
    // It has not been seen since.
    if (this.gone === newest) return;
    let detail;
    try {
      detail = await get(`/api/qp?key=${encodeURIComponent(key)}`);
    } catch (error) {
      if (this.key !== key) return;
      const isGone = error.status === 404;
      if (isGone) this.gone = newest;
      setText(this.note, isGone ? "This queue pair does not exist any more: it was destroyed, or its process has ended." : error.message);
      this.note.hidden = false;
      return;
    }
    if (this.key === key) this.show(detail);
  }

  show(detail) {
    const { qp } = detail;
    this.note.hidden = true;
    setText(this.title, `QP ${format.qpn(qp.number)} · ${qp.service}`);
    setText(this.state, qp.state);
    setAttribute(this.state, "class", `pill state-${qp.state.toLowerCase()}`);
    this.ladder.ends(`QP ${format.qpn(qp.number)}`, qp.remote_address ? `${qp.remote_address} QP ${format.qpn(qp.remote_number)}` : "peers");
    this.facts.replaceChildren(...facts(detail).flatMap(([name, value]) => [h("dt", { text: name }), h("dd", { text: value })]));
    SECTIONS.forEach(([title, elements], index) => {
      this.sections[index].replaceChildren(h("h3", { text: title }), ...elements(detail));
      this.sections[index].hidden = false;
    });
  }
}
