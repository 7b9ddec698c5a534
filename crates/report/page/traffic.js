// Traffic over time, RDMA against TCP, latency, bytes in flight and PSNs.
function lineName(line, from) {
  if (line.kind === "all_rdma") return "all RDMA";
  if (line.kind === "all_tcp") return "all TCP";
  if (line.kind === "others") return "others";
  if (line.kind === "tcp") return `TCP ${from.tcp[line.id - 1] ? from.tcp[line.id - 1].b : line.id}`;
  const found = from.conversations.find((one) => one.id === line.id);
  return found ? `#${line.id} ${found.transport} ${found.a.qpn === null ? found.a.address : hex(found.a.qpn, 6)} ⇄ ${found.b.qpn === null ? found.b.address : hex(found.b.qpn, 6)}` : `#${line.id}`;
}

// Points of a line as rates, with zeroes between the intervals that have packets.
function rates(line, series, unit) {
  const seconds = series.interval_ns / 1e9;
  const points = [];
  const value = (point) => unit === "bits" ? point[2] * 8 / seconds : point[1] / seconds;
  let before = -1;
  for (const point of line.points) {
    if (point[0] > before + 1) {
      if (before >= 0 || true) points.push([(before + 1) * series.interval_ns, 0]);
      if (point[0] > before + 2) points.push([(point[0] - 1) * series.interval_ns, 0]);
    }
    points.push([point[0] * series.interval_ns, value(point)]);
    before = point[0];
  }
  if (before + 1 < series.bins) points.push([(before + 1) * series.interval_ns, 0], [(series.bins - 1) * series.interval_ns, 0]);
  return points;
}

function ioGraph() {
  const { series } = file;
  const node = section("io", "Traffic over time", `one point for ${duration(series.interval_ns)}; click a name to hide its line`);
  const lines = series.lines.filter((line) => line.kind !== "all_rdma" && line.kind !== "all_tcp");
  if (!lines.length) return node.append(el("p", { class: "empty" }, "No traffic.")), node;
  let chart = null;
  const draw = (unit) => {
    const next = lineChart({ label: "Traffic over time", x: { format: duration, low: 0, high: Math.max((series.bins - 1) * series.interval_ns, 1) }, y: { format: unit === "bits" ? bitRate : packetRate },
      series: lines.map((line, at) => ({ name: lineName(line, file), colour: line.kind === "rdma" ? line.id - 1 : line.kind === "tcp" ? file.conversations.length + line.id : 6, area: lines.length === 1, points: rates(line, series, unit) })) });
    if (chart) chart.replaceWith(next); else node.append(next);
    chart = next;
  };
  node.tools.append(segmented([["bits", "bit/s"], ["packets", "packets/s"]], "bits", draw));
  draw("bits");
  return node;
}

// RDMA against TCP, also from different files: each starts at zero.
function versus() {
  const sides = [];
  for (const one of data.files) for (const line of one.series.lines) if (line.kind === "all_rdma" || line.kind === "all_tcp") sides.push({ one, line, rdma: line.kind === "all_rdma" });
  if (!sides.some((side) => side.rdma) || !sides.some((side) => !side.rdma)) return null;
  const node = section("versus", "RDMA against TCP", data.files.length > 1 ? "each capture from its own first packet" : "in this capture");
  const name = (side) => `${side.rdma ? "RDMA" : "TCP"}${data.files.length > 1 ? ` (${side.one.path.split("/").pop()})` : ""}`;
  const row = (side) => {
    const { one, line } = side;
    const sum = (at) => line.points.reduce((total, point) => total + point[at], 0);
    const active = line.points.length ? (line.points.at(-1)[0] - line.points[0][0] + 1) * one.series.interval_ns : 0;
    const payload = side.rdma ? one.conversations.reduce((total, it) => total + it.a_to_b.payload + it.b_to_a.payload, 0) : one.tcp.reduce((total, it) => total + it.a_to_b.payload + it.b_to_a.payload, 0);
    const again = side.rdma ? one.conversations.reduce((total, it) => total + (it.anomalies.retransmission || 0), 0) : one.tcp.reduce((total, it) => total + it.retransmitted + it.late, 0);
    return { side, packets: sum(1), bytes: sum(2), active: Math.min(active, Math.max(one.duration_ns, 1)), payload, again };
  };
  const rows = sides.map(row);
  let chart = null;
  const draw = (unit) => {
    const next = lineChart({ label: "RDMA against TCP", x: { format: duration, low: 0 }, y: { format: unit === "bits" ? bitRate : packetRate }, series: sides.map((side, at) => ({ name: name(side), colour: side.rdma ? at * 2 % 7 : 1 + at * 2 % 6, area: true, points: rates(side.line, side.one.series, unit) })) });
    if (chart) chart.replaceWith(next); else node.append(next);
    chart = next;
  };
  node.tools.append(segmented([["bits", "bit/s"], ["packets", "packets/s"]], "bits", draw));
  node.append(table([["", "", null, (it) => name(it.side)], ["Packets", "num", null, (it) => count(it.packets)], ["On the wire", "num", null, (it) => bytes(it.bytes)], ["Payload", "num", null, (it) => bytes(it.payload)],
    ["Active for", "num", null, (it) => duration(it.active)], ["Payload rate", "num", null, (it) => bitRate(it.payload * 8e9 / it.active)], ["Header share", "num", null, (it) => `${((it.bytes - it.payload) * 100 / Math.max(it.bytes, 1)).toFixed(1)}%`], ["Retransmitted", "num", null, (it) => count(it.again)]], rows));
  draw("bits");
  return node;
}

// A bin is an eighth of a power of two wide. Between bins without messages the line is at zero.
function steps(bins) {
  const points = [];
  let before = 0;
  for (const [upTo, messages] of bins) {
    const from = Math.max(upTo * 8 / 9, 1);
    if (before && from > before * 1.01) points.push([before, 0]);
    points.push([Math.max(from, before), messages]);
    before = Math.max(upTo, 1);
  }
  if (before) points.push([before, 0]);
  return points;
}

function latency() {
  const node = section("latency", "Latency", "from a request's first packet to its acknowledgement, where this capture was taken");
  if (!file.latency.length) return node.append(el("p", { class: "empty" }, "No acknowledged messages.")), node;
  node.append(table([["Operation", "", null, (one) => operationName(one.operation)], ["Messages", "num", null, (one) => count(one.summary.count)],
    ...[["Minimum", "min_ns"], ["p50", "p50_ns"], ["p90", "p90_ns"], ["p99", "p99_ns"], ["Maximum", "max_ns"]].map(([name, field]) => [name, "num", null, (one) => duration(one.summary[field], true)])], file.latency));
  const curves = file.latency.map((one, at) => {
    let sum = 0;
    const points = [[Math.max(one.summary.min_ns, 1), 0]];
    for (const [upTo, messages] of one.bins) { sum += messages; points.push([Math.min(Math.max(upTo, 1), Math.max(one.summary.max_ns, 1)), sum * 100 / one.summary.count]); }
    return { name: operationName(one.operation), colour: at, step: true, points };
  });
  const shape = file.latency.map((one, at) => ({ name: operationName(one.operation), colour: at, area: true, step: true, points: steps(one.bins) }));
  node.append(el("div", { class: "pair" },
    el("div", null, el("h3", null, "Distribution"), lineChart({ label: "Latency distribution", width: 520, height: 230, x: { format: duration, log: true }, y: { format: short }, series: shape })),
    el("div", null, el("h3", null, "Share of messages that were faster"), lineChart({ label: "Cumulative latency", width: 520, height: 230, x: { format: duration, log: true }, y: { format: (value) => `${value}%`, exact: (value) => `${value.toFixed(1)}%` }, series: curves }))));
  return node;
}

function flight() {
  const node = section("flight", "In flight and PSNs", "what each requester sent, and how much of it was not acknowledged yet");
  const curves = file.curves.filter((one) => one.points.length > 0);
  if (!curves.length) return node.append(el("p", { class: "empty" }, "No requests on reliable connections.")), node;
  const title = (one) => {
    const found = file.conversations.find((it) => it.id === one.conversation);
    const [from, to] = one.from_a ? [found.a, found.b] : [found.b, found.a];
    return `#${one.conversation}  ${endpoint(from)} → ${endpoint(to)}`;
  };
  const holder = el("div", { class: "pair" });
  const draw = (one) => {
    const at = (field) => one.points.map((point) => [point[0], point[field]]);
    const psn = (mark) => (mark.psn - one.first_psn) & 0xffffff;
    const most = one.points.reduce((top, point) => Math.max(top, point[2]), 0);
    const marks = (kinds) => file.marks.filter((mark) => mark.conversation === one.conversation && kinds.includes(mark.kind) && mark.psn !== null && psn(mark) <= most).map((mark) => [mark.time_ns, psn(mark), key(mark.frame, mark.segment)]);
    const dots = [["retransmitted", ["retransmission", "timeout", "probe"], 1], ["missing", ["missing_request", "missing_response"], 3]].map(([name, kinds, colour]) => ({ name, colour, dots: true, points: marks(kinds) })).filter((one) => one.points.length);
    const x = { format: duration };
    holder.replaceChildren(
      el("div", null, el("h3", null, "Bytes in flight"), lineChart({ label: "Bytes in flight", width: 520, height: 240, x, y: { format: bytes }, series: [{ name: "in flight", colour: 0, step: true, area: true, points: at(1) }] })),
      el("div", null, el("h3", null, `PSNs since the first (${hex(one.first_psn, 6)})`), lineChart({ label: "PSN progress", width: 520, height: 240, x, y: { format: short, exact: count }, series: [{ name: "sent", colour: 0, step: true, points: at(2) }, { name: "acknowledged", colour: 2, step: true, points: at(3) }, ...dots] })));
  };
  if (curves.length > 1) {
    const choice = el("select", { "aria-label": "Requester", onchange: () => draw(curves[choice.selectedIndex]) }, curves.map((one) => el("option", null, title(one))));
    node.tools.append(choice);
  } else node.tools.append(el("span", { class: "muted" }, title(curves[0])));
  draw(curves[0]);
  node.append(holder, unmarked());
  return node;
}
