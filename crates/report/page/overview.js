// Summary, diagnosis, timeline, conversations, protocols, packets.
const WORST = {
  error: ["✗", "Something failed"],
  warning: ["!", "It worked, but not smoothly"],
  info: ["✓", "No problems found"],
};

function summary() {
  const wrong = file.topics.filter((topic) => topic.severity !== "info");
  const roce = file.roce_packets > 0;
  const [mark, title] = WORST[file.worst] || ["✓", "No problems found"];
  const good = "Every request was answered. Nothing was lost, retransmitted or refused.";
  const text = wrong.length ? wrong.map((topic) => topic.title).slice(0, 3).join(". ") + (wrong.length > 3 ? `, and ${plural(wrong.length - 3, "more finding")}.` : ".")
    : file.worst === "info" ? "Nothing failed and nothing had to be repaired; see the notes below." : good;
  const foreign = file.tcp.length ? "The TCP connections are counted below." : "";
  const banner = roce ? el("div", { class: `verdict ${file.worst || "good"}` }, el("span", { class: "mark" }, mark), el("div", null, el("strong", null, title), text))
    : el("div", { class: "verdict warning" }, el("span", { class: "mark" }, "!"), el("div", null, el("strong", null, "No RoCE or InfiniBand packets in this file"), foreign));
  const rate = file.duration_ns ? bitRate(file.bytes * 8e9 / file.duration_ns) : "–";
  const tiles = [["Packets", count(file.packets), roce && file.roce_packets !== file.packets ? ` ${count(file.roce_packets)} RoCE` : ""], ["On the wire", bytes(file.bytes)], ["Duration", duration(file.duration_ns)], ["Average rate", rate],
    ["Conversations", count(file.conversations_total)], ["Messages", count(file.messages)],
    ["Checksums (ICRC)", file.icrc.bad ? `${count(file.icrc.bad)} wrong` : file.icrc.ok ? "all correct" : "–"]];
  const note = [file.format, file.file_bytes && bytes(file.file_bytes), file.start && `from ${file.start}`].filter(Boolean).join(", ");
  return section("summary", "Summary", note, banner, el("dl", { class: "tiles" }, tiles.map(([name, value, small]) => el("div", null, el("dt", null, name), el("dd", null, value, small && el("small", null, small))))));
}

function diagnosis() {
  const node = section("diagnosis", "Diagnosis", "what happened, what it means, and the packets that show it");
  for (const topic of file.topics) {
    const where = topic.conversations.length ? `conversation${topic.conversations.length > 1 ? "s" : ""} ` : "";
    node.append(el("details", { class: `topic ${topic.severity}`, id: `topic-${topic.id}`, open: topic.severity !== "info" },
      el("summary", null, el("h3", null, topic.title), el("span", { class: `badge ${topic.severity}` }, severityName[topic.severity])),
      el("div", { class: "body" }, el("p", null, topic.meaning), el("p", { class: "advice" }, el("b", null, "What to do: "), topic.advice),
        where && el("p", { class: "muted" }, "In ", where, topic.conversations.slice(0, 20).map((id, at) => [at ? ", " : "", el("a", { href: `#ladder-${id}` }, `#${id}`)]), topic.conversations.length > 20 && ` and ${count(topic.conversations.length - 20)} more`),
        topic.evidence.length > 0 && el("ul", { class: "evidence" }, topic.evidence.map((one) => el("li", null, packetLink(one.frame, one.segment), el("span", null, one.text))), topic.count > topic.evidence.length && el("li", { class: "muted" }, `${count(topic.count)} in all`)))));
  }
  if (!file.topics.length) node.append(el("p", { class: "empty" }, file.roce_packets ? "Nothing to report: no loss, no retransmissions, no refused requests." : "There is no RDMA traffic to diagnose."));
  if (file.problems_total) node.append(el("details", { class: "topic warning", id: "topic-problems", open: true },
    el("summary", null, el("h3", null, `${plural(file.problems_total, "place")} in the file could not be read in full`), el("span", { class: "badge warning" }, "problem")),
    el("div", { class: "body" }, el("ul", { class: "evidence" }, file.problems.map((text) => el("li", null, text))))));
  return node;
}

const diamond = (x, y) => `${x - 6},${y} ${x},${y - 6} ${x + 6},${y} ${x},${y + 6}`;

// Says how many anomalies the charts do not mark.
function unmarked() {
  const total = file.marks.length + file.marks_left_out;
  return file.marks_left_out > 0 ? el("p", { class: "muted" }, `${count(file.marks.length)} of ${count(total)} anomalies are marked, spread evenly over time.`) : "";
}

// One lane per conversation: when it was active, when it was set up, and where anomalies are.
function timeline() {
  const node = section("timeline", "Timeline", "when each conversation was active; marks are connection set-up and anomalies");
  const all = [...file.conversations].sort((x, y) => x.time_ns - y.time_ns);
  const span = Math.max(file.duration_ns, 1);
  const draw = (limit) => {
    const lanes = all.slice(0, limit);
    const [left, right, row] = [250, 986, 30];
    const height = lanes.length * row + 34;
    const x = (time) => left + Math.min(Math.max(time, 0), span) / span * (right - left);
    const scale = linear(0, span, 8);
    const picture = svg("svg", { viewBox: `0 0 1000 ${height}` });
    for (const tick of scale.ticks) picture.append(svg("line", { class: "grid", x1: x(tick), x2: x(tick), y1: 0, y2: height - 26 }), svg("text", { x: x(tick), y: height - 8, "text-anchor": "middle" }, duration(tick)));
    lanes.forEach((one, at) => {
      const y = at * row;
      const start = x(one.time_ns);
      const lane = svg("g", { class: "lane", onclick: () => { location.hash = `#ladder-${one.id}`; } }, svg("rect", { class: "lane-back", x: 0, y, width: 1000, height: row }),
        svg("text", { class: "lane-label", x: 4, y: y + 19 }, `#${one.id} ${one.transport}  ${one.a.address} ⇄ ${one.b.address}`.slice(0, 40)),
        svg("g", { class: `k${(one.id - 1) % 7}` }, svg("rect", { x: start, y: y + 10, width: Math.max(x(one.time_ns + one.duration_ns) - start, 2), height: 11, rx: 3, fill: "currentColor", "fill-opacity": .75 })));
      for (const event of one.control) lane.append(svg("g", { class: "k3" }, svg("polygon", { points: diamond(x(event.time_ns), y + 15.5), fill: "currentColor", stroke: "var(--card)", "stroke-width": 1.2 }, svg("title", null, `CM ${event.message}: ${event.summary}`))));
      picture.append(lane);
    });
    const lane = new Map(lanes.map((one, at) => [one.id, at]));
    const seen = new Set();
    for (const mark of file.marks) {
      const at = lane.get(mark.conversation);
      const spot = `${at} ${Math.round(x(mark.time_ns) / 3)} ${mark.severity}`;
      if (at === undefined || seen.has(spot)) continue;
      seen.add(spot);
      picture.append(svg("g", { class: `sev-${mark.severity} mark`, "data-kind": mark.kind, onclick: () => { location.hash = `#packet-${key(mark.frame, mark.segment)}`; } },
        svg("circle", { cx: x(mark.time_ns), cy: at * row + 15.5, r: 4.2, fill: "currentColor", stroke: "var(--card)", "stroke-width": 1.4 }, svg("title", null, `${mark.kind.replace(/_/g, " ")}, packet ${key(mark.frame, mark.segment)}`))));
    }
    return el("div", { class: "chart" }, picture);
  };
  if (!all.length) return node.append(el("p", { class: "empty" }, "No conversations.")), node;
  let chart = draw(14);
  node.append(chart, unmarked());
  if (all.length > 14) {
    const more = el("button", { class: "more", type: "button", onclick: () => { const next = draw(200); chart.replaceWith(next); more.remove(); } }, `Show more of ${count(all.length)} conversations`);
    node.append(more);
  }
  return node;
}

function conversations() {
  const node = section("conversations", "Conversations", "pairs of queue pairs; click one to see its ladder");
  const total = (one) => one.a_to_b.bytes + one.b_to_a.bytes;
  const most = Math.max(...file.conversations.map(total), 1);
  const rate = (one) => one.duration_ns ? total(one) * 8e9 / one.duration_ns : 0;
  const odd = (one) => Object.values(one.anomalies).reduce((sum, value) => sum + value, 0);
  const messages = (one) => Object.values(one.operations).reduce((sum, stats) => sum + stats.messages, 0);
  const operations = (one) => el("span", { title: Object.entries(one.operations).map(([name, stats]) => `${count(stats.messages)} ${operationName(name)}`).join("\n") }, count(messages(one)));
  const ends = (end) => [el("div", null, end.address), el("div", { class: "muted" }, end.qpn === null ? "QP unseen" : `QP ${hex(end.qpn, 6)}`)];
  node.append(table([
    ["#", "num", (one) => one.id, (one) => one.id],
    ["Transport", "", (one) => one.transport, (one) => one.transport],
    ["A", "nowrap", (one) => endpoint(one.a), (one) => ends(one.a)],
    ["B", "nowrap", (one) => endpoint(one.b), (one) => ends(one.b)],
    ["Packets A → B", "num", (one) => one.a_to_b.packets, (one) => count(one.a_to_b.packets)],
    ["B → A", "num", (one) => one.b_to_a.packets, (one) => count(one.b_to_a.packets)],
    ["Bytes", "num", total, (one) => bytes(total(one))],
    ["", "bars", null, (one) => bar(total(one) / most)],
    ["Rate", "num", rate, (one) => one.duration_ns ? bitRate(rate(one), true) : "–"],
    ["Duration", "num", (one) => one.duration_ns, (one) => duration(one.duration_ns, true)],
    ["Messages", "num", messages, operations],
    ["Anomalies", "num", odd, (one) => odd(one) ? el("span", { class: `badge ${one.worst || "info"}` }, count(odd(one))) : "–"],
  ], file.conversations, (one) => { location.hash = `#ladder-${one.id}`; }, 20));
  if (file.conversations_total > file.conversations.length) node.append(el("p", { class: "muted" }, `The ${count(file.conversations.length)} largest of ${count(file.conversations_total)} conversations are listed.`));
  if (file.tcp.length) {
    node.append(el("h3", null, "TCP connections"), table([
      ["A", "", (one) => one.a, (one) => one.a], ["B", "", (one) => one.b, (one) => one.b],
      ["Packets A → B", "num", (one) => one.a_to_b.packets, (one) => count(one.a_to_b.packets)], ["B → A", "num", (one) => one.b_to_a.packets, (one) => count(one.b_to_a.packets)],
      ["Bytes", "num", total, (one) => bytes(total(one))], ["Rate", "num", rate, (one) => one.duration_ns ? bitRate(rate(one), true) : "–"],
      ["Duration", "num", (one) => one.duration_ns, (one) => duration(one.duration_ns, true)],
      ["Retransmitted", "num", (one) => one.retransmitted, (one) => count(one.retransmitted)], ["Filled a gap", "num", (one) => one.late, (one) => count(one.late)],
    ], file.tcp, null, 20));
  }
  return node;
}

function bar(share) {
  const fill = el("i");
  fill.style.width = `${Math.max(share * 100, 0.5).toFixed(1)}%`;
  return el("span", { class: "bar track" }, fill);
}

function protocols() {
  const node = section("protocols", "Protocols", "packets by protocol, layer by layer");
  const rows = [];
  const walk = (nodes, depth) => { for (const one of nodes) { rows.push([one, depth]); walk(one.children, depth + 1); } };
  walk(file.hierarchy, 0);
  const body = rows.map(([one, depth]) => {
    const name = el("td", null, one.name);
    name.style.paddingLeft = `${depth * 20}px`;
    return el("tr", null, name, el("td", { class: "num" }, count(one.packets)), el("td", { class: "num" }, `${(one.packets * 100 / Math.max(file.packets, 1)).toFixed(1)}%`), el("td", { class: "bars" }, bar(one.packets / Math.max(file.packets, 1))), el("td", { class: "num" }, bytes(one.bytes)));
  });
  node.append(el("div", { class: "scroll" }, el("table", { class: "tree" }, el("thead", null, el("tr", null, el("th", null, "Protocol"), el("th", { class: "num" }, "Packets"), el("th", { class: "num" }, "Share"), el("th"), el("th", { class: "num" }, "Bytes"))), el("tbody", null, body))));
  return node;
}

function packets() {
  const node = section("packets", "Packets", `${count(file.shown.length)} of ${count(file.packets)}; search by number, operation, PSN, address, anomaly`);
  const search = el("input", { type: "search", id: "search", placeholder: "Search packets", "aria-label": "Search packets" });
  const holder = el("div", { class: "packets" });
  const draw = () => {
    const query = search.value.trim().toLowerCase();
    const words = query.split(/\s+/).filter(Boolean);
    const text = (one) => `${one.f} ${one.d} ${one.y} ${(one.n || []).map((note) => note[1] + " " + note[2]).join(" ")}`.toLowerCase();
    const found = words.length ? file.shown.filter((one) => words.every((word) => text(one).includes(word))) : file.shown;
    holder.replaceChildren(table([
      ["Packet", "num", (one) => one.f, number], ["Time", "num", (one) => one.t, (one) => clock(one.t, file.duration_ns)],
      ["Addresses", "nowrap", (one) => one.d, (one) => one.d], ["Summary", "", (one) => one.y, (one) => highlighted(dotted(one.y), words.length === 1 ? words[0] : "")],
      ["", "", null, (one) => (one.n || []).slice(0, 2).map(([severity, kind]) => [el("span", { class: `badge ${severity}` }, kind.replace(/_/g, " ")), " "])],
    ], found, (one) => { location.hash = `#packet-${key(one.f, one.s)}`; }, 25), el("p", { class: "muted", id: "found" }, words.length ? `${plural(found.length, "packet")} found` : ""));
  };
  search.addEventListener("input", draw);
  node.tools.append(search);
  node.append(holder);
  draw();
  return node;
}
