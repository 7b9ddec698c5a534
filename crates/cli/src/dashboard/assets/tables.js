// The tables of processes, QPs, CQs, MRs and devices: sorted by a click on a column, filtered by text.

import { byId, h, reconcile, setAttribute, setText, svg } from "./dom.js";
import * as format from "./format.js";
import { sparkline } from "./chart.js";

const MAX_SHOWN = 300;
const SPARK_WIDTH = 72;
const SPARK_HEIGHT = 18;

const text = (label, value, more = {}) => ({ label, value, ...more });
const number = (label, value, show, more = {}) => ({ label, value, show, number: true, ...more });
const rate = (label, value, more = {}) => number(label, value, (row) => (value(row) > 0 ? format.bits(value(row)) : "–"), { bar: true, ...more });
const nonzero = (value) => (row) => (value(row) > 0 ? format.whole(value(row)) : "–");
const alarm = (label, value, hint) => number(label, value, nonzero(value), { alarm: true, hint });
const process = text("Process", (row) => row.process, { quiet: (row) => row.pid });

const VIEWS = {
  qps: {
    label: "Queue pairs",
    key: (row) => row.key,
    order: ["Sent", -1],
    clickable: true,
    columns: [
      text("QPN", (row) => format.qpn(row.qpn), { mono: true, order: (row) => row.qpn }),
      process,
      text("Type", (row) => row.service, {
        quiet: (row) => ({ "shared memory": "shm", sockets: "udp" })[row.link] ?? "",
        hint: "Service, and how packets reach the peer: shm is memory shared with a process of this host, udp is a socket",
      }),
      text("State", (row) => row.state, { pill: true }),
      text("Peer", (row) => row.remote ?? "–", {
        mono: true,
        quiet: (row) => (row.remote == null || row.remote_qpn == null ? "" : format.qpn(row.remote_qpn)),
        hint: "Address and QPN of the peer",
      }),
      rate("Sent", (row) => row.tx, { hint: "Payload sent" }),
      rate("Received", (row) => row.rx, { hint: "Payload received", second: true }),
      { label: "", spark: true, value: () => 0 },
      number("Msg/s", (row) => row.messages, (row) => (row.messages > 0 ? format.count(row.messages) : "–"), { extra: true }),
      number("p50", (row) => row.p50 ?? -1, (row) => format.nanos(row.p50), { hint: "Median latency in the last interval", extra: true }),
      number("p99", (row) => row.p99 ?? -1, (row) => format.nanos(row.p99), { hint: "99th percentile of the latency in the last interval" }),
      number("In flight", (row) => row.in_flight, (row) => (row.in_flight > 0 ? format.memory(row.in_flight) : "–"), {
        hint: "Bytes sent and not acknowledged",
        extra: true,
      }),
      alarm("Retx", (row) => row.retransmits, "Packets sent again since the QP was created"),
      alarm("NAKs", (row) => row.naks, "NAKs received since the QP was created"),
      alarm("Errors", (row) => row.errors, "Completions with an error"),
    ],
  },
  processes: {
    label: "Processes",
    key: (row) => row.pid,
    order: ["Sent", -1],
    columns: [
      number("PID", (row) => row.pid, (row) => row.pid, { mono: true }),
      text("Name", (row) => row.name, { strong: true }),
      text("Command", (row) => row.command, {
        wide: true,
        title: (row) => row.command,
        // Without the directory of the program.
        show: (row) => row.command.replace(/^\S*\//, ""),
      }),
      text("State", (row) => ({ R: "running", S: "sleeping", T: "stopped", Z: "zombie", D: "waiting" })[row.state] ?? row.state, {
        warn: (row) => row.state === "T",
      }),
      rate("Sent", (row) => row.tx),
      rate("Received", (row) => row.rx, { second: true }),
      number("Packets/s", (row) => row.tx_packets + row.rx_packets, (row) => (row.tx_packets + row.rx_packets > 0 ? format.count(row.tx_packets + row.rx_packets) : "–")),
      number("QPs", (row) => row.qps, (row) => format.whole(row.qps)),
      number("CQs", (row) => row.cqs, (row) => format.whole(row.cqs), { extra: true }),
      number("MRs", (row) => row.mrs, (row) => format.whole(row.mrs), { extra: true }),
      number("Memory", (row) => row.memory, (row) => format.memory(row.memory), { hint: "Registered memory" }),
      alarm("Faults/s", (row) => row.faults, "Retransmissions, NAKs, timeouts and drops"),
      number("Age", (row) => row.age, (row) => format.duration(row.age)),
    ],
  },
  cqs: {
    label: "Completion queues",
    key: (row) => row.key,
    order: ["Completions/s", -1],
    columns: [
      number("CQ", (row) => row.id, (row) => row.id, { mono: true }),
      process,
      text("Device", (row) => row.device),
      number("Completions/s", (row) => row.rate, (row) => (row.rate > 0 ? format.count(row.rate) : "–"), { bar: true }),
      number("Total", (row) => row.completions, (row) => format.whole(row.completions)),
      number("Pending", (row) => row.pending, nonzero((row) => row.pending), { hint: "Completions that the program has not polled" }),
      number("Capacity", (row) => row.capacity, (row) => format.whole(row.capacity)),
      alarm("Overruns", (row) => row.overruns, "Completions lost because the CQ was full"),
    ],
  },
  mrs: {
    label: "Memory regions",
    key: (row) => row.key,
    order: ["Length", -1],
    columns: [
      process,
      text("Device", (row) => row.device),
      number("PD", (row) => row.pd, (row) => row.pd, { mono: true }),
      number("Length", (row) => row.length, (row) => (row.length > 2 ** 63 ? "all memory" : format.memory(row.length)), { bar: true }),
      text("Access", (row) => row.access.join(", ").replaceAll("_", " ") || "local read", { wide: true }),
    ],
  },
  devices: {
    label: "Devices",
    key: (row) => row.key,
    order: ["Sent", -1],
    columns: [
      text("Device", (row) => row.name, { strong: true }),
      process,
      text("Address", (row) => row.address ?? "–", { mono: true }),
      text("Port", (row) => (row.active ? "active" : "down"), { warn: (row) => !row.active }),
      number("MTU", (row) => row.mtu, (row) => row.mtu),
      number("QPs", (row) => row.qps, (row) => format.whole(row.qps)),
      rate("Sent", (row) => row.tx),
      rate("Received", (row) => row.rx, { second: true }),
      number("Packets/s", (row) => row.tx_packets + row.rx_packets, (row) => (row.tx_packets + row.rx_packets > 0 ? format.count(row.tx_packets + row.rx_packets) : "–")),
      number("Shared memory", (row) => row.local, (row) => (row.tx_packets + row.rx_packets > 0 ? `${Math.round(row.local * 100)} %` : "–"), {
        hint: "The share of packets that went through memory shared with another process",
      }),
      alarm("Faults/s", (row) => row.faults, "Retransmissions, NAKs, timeouts and drops"),
    ],
  },
};

const searchable = (row) =>
  [row.pid, row.process ?? row.name, row.command, row.device, row.state, row.service, row.remote, row.address]
    .concat(row.qpn == null ? [] : [format.qpn(row.qpn), row.qpn, row.remote_qpn == null ? "" : format.qpn(row.remote_qpn)])
    .join(" ")
    .toLowerCase();

export class Tables {
  constructor({ onOpen, historyOf }) {
    Object.assign(this, { onOpen, historyOf });
    this.current = "qps";
    this.orders = Object.fromEntries(Object.entries(VIEWS).map(([name, view]) => [name, [...view.order]]));
    this.tabs = {};
    for (const [name, view] of Object.entries(VIEWS)) {
      const count = h("span", { class: "badge", text: "0" });
      const tab = h("button", { type: "button", role: "tab", "data-view": name, onclick: () => this.select(name) }, view.label, count);
      this.tabs[name] = { tab, count };
      byId("tabs").append(tab);
    }
    byId("filter").addEventListener("input", () => this.draw());
    this.select("qps");
  }

  select(name) {
    this.current = name;
    for (const [own, { tab }] of Object.entries(this.tabs)) setAttribute(tab, "aria-selected", own === name);
    byId("rows").replaceChildren();
    byId("rows").keyed = new Map();
    this.drawHead();
    this.draw();
  }

  show(state) {
    this.state = state;
    for (const [name, { count }] of Object.entries(this.tabs)) setText(count, format.whole(state.counts[name]));
    this.draw();
  }

  sortBy(column) {
    const order = this.orders[this.current];
    this.orders[this.current] = order[0] === column.label ? [column.label, -order[1]] : [column.label, column.number ? -1 : 1];
    this.drawHead();
    this.draw();
  }

  drawHead() {
    const [label, direction] = this.orders[this.current];
    const cells = VIEWS[this.current].columns.map((column) => {
      const sorted = column.label && column.label === label;
      const button = column.label && h("button", { type: "button", onclick: () => this.sortBy(column) }, column.label, sorted ? (direction < 0 ? " ↓" : " ↑") : "");
      const aria = sorted ? (direction < 0 ? "descending" : "ascending") : null;
      return h("th", { class: [column.number && "number", column.extra && "extra"].filter(Boolean).join(" "), title: column.hint, scope: "col", "aria-sort": aria }, button || null);
    });
    byId("head").replaceChildren(h("tr", {}, ...cells));
  }

  draw() {
    if (!this.state) return;
    const view = VIEWS[this.current];
    const all = this.state[this.current];
    const words = byId("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = words.length === 0 ? [...all] : all.filter((row) => words.every((word) => searchable(row).includes(word)));
    const [label, direction] = this.orders[this.current];
    const column = view.columns.find((one) => one.label === label);
    const order = column.order ?? column.value;
    // By key if equal, so that idle rows do not jump.
    const compare = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
    found.sort((a, b) => direction * compare(order(a), order(b)) || compare(view.key(a), view.key(b)));
    const most = new Map(view.columns.filter((one) => one.bar).map((one) => [one, Math.max(1, ...all.map(one.value))]));
    reconcile(
      byId("rows"),
      found.slice(0, MAX_SHOWN),
      view.key,
      (row) => this.createRow(view, row),
      (element, row) => this.updateRow(element, view, row, most),
    );
    const total = this.state.counts[this.current];
    const hidden = found.length - Math.min(found.length, MAX_SHOWN) + (total - all.length);
    const none = all.length === 0 ? "No process has a device open. Try: ferroce demo --keep" : found.length === 0 ? "No row matches the filter." : "";
    setText(byId("note"), hidden > 0 ? `${format.whole(hidden)} more, less busy: ferroce stat lists all.` : none);
  }

  createRow(view, row) {
    const cells = view.columns.map((column) => {
      const cell = h("td", { class: [column.number && "number", column.mono && "mono", column.wide && "wide", column.strong && "strong", column.extra && "extra"].filter(Boolean).join(" ") });
      if (column.spark) {
        cell.append(svg("svg", { width: SPARK_WIDTH, height: SPARK_HEIGHT, class: "spark" }, svg("path", { class: "line tone-tx" }), svg("path", { class: "line tone-rx" })));
        cell.className = "spark-cell";
      } else if (column.pill) {
        cell.append(h("span", { class: "pill" }));
      } else {
        cell.append(h("span"));
        if (column.quiet) cell.append(" ", h("span", { class: "quiet" }));
        if (column.bar) cell.append(h("i", { class: column.second ? "load rx" : "load" }));
      }
      return cell;
    });
    const open = view.clickable ? () => this.onOpen(view.key(row)) : null;
    const onkeydown = (event) => (event.key === "Enter" || event.key === " ") && (event.preventDefault(), open());
    return h("tr", { "data-key": view.key(row), ...(open && { tabindex: 0, class: "open", onclick: open, onkeydown }) }, ...cells);
  }

  updateRow(element, view, row, most) {
    view.columns.forEach((column, index) => {
      const cell = element.children[index];
      if (column.spark) {
        const history = this.historyOf(view.key(row));
        const most = Math.max(1, ...history.flatMap(({ tx, rx }) => [tx, rx]));
        ["tx", "rx"].forEach((key, child) => {
          const line = sparkline(history.map((point) => point[key]), most, SPARK_WIDTH, SPARK_HEIGHT);
          setAttribute(cell.firstChild.children[child], "d", line);
        });
        return;
      }
      const value = column.value(row);
      setText(cell.firstChild, column.show ? column.show(row) : value);
      if (column.quiet) setText(cell.children[1], column.quiet(row));
      if (column.title) setAttribute(cell, "title", column.title(row));
      if (column.pill) setAttribute(cell.firstChild, "class", `pill state-${value.toLowerCase()}`);
      if (column.bar) cell.lastChild.style.width = `${value > 0 ? Math.max(2, (value / most.get(column)) * 100) : 0}%`;
      if (column.alarm) cell.classList.toggle("alarm", value > 0);
      if (column.warn) cell.classList.toggle("alarm", column.warn(row));
    });
  }
}
