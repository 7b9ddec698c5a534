// Ladder diagrams: two lifelines and the packets between them. A ladder is drawn when it is unfolded.
const AGAIN = new Set(["duplicate", "probe", "repeated_acknowledge", "repeated_response", "retransmission", "timeout"]);
const MISSING = new Set(["missing_request", "missing_response", "message_lost", "capture_gap"]);
const ENDED = new Set(["retry_exceeded", "rnr_retry_exceeded"]);
const ROWS = 300;
const FOLD = 4;

function ladders() {
  const shown = file.conversations.filter((one) => file.shown.some((packet) => packet.c === one.id));
  const node = section("ladders", "Ladders", "each connection, packet by packet; unfold one, click a packet to see its bytes");
  if (!shown.length) node.append(el("p", { class: "empty" }, "No conversations of RoCE or InfiniBand."));
  const limit = 100;
  const add = (from) => {
    for (const conversation of shown.slice(from, from + limit)) node.append(ladder(conversation));
    if (shown.length > from + limit) {
      const more = el("button", { class: "more", type: "button", onclick: () => { more.remove(); add(from + limit); } }, `Show more of ${count(shown.length)}`);
      node.append(more);
    }
  };
  add(0);
  return node;
}

function ladder(conversation) {
  const { a, b, a_to_b, b_to_a } = conversation;
  const problems = Object.values(conversation.anomalies).reduce((sum, one) => sum + one, 0);
  const body = el("div");
  const node = el("details", { class: "ladder", id: `ladder-${conversation.id}`, ontoggle: () => { if (node.open && !body.firstChild) unfold(conversation, body); } },
    el("summary", null, el("b", null, `#${conversation.id}`), el("span", { class: "badge plain" }, conversation.transport),
      el("span", null, el("span", { class: "k0" }, endpoint(a)), el("span", { class: "muted" }, " ⇄ "), el("span", { class: "k1" }, endpoint(b))), el("span", { class: "spacer" }),
      problems > 0 && el("span", { class: `badge ${conversation.worst || "info"}` }, plural(problems, "anomaly", "anomalies")),
      el("span", { class: "muted" }, `${plural(a_to_b.packets + b_to_a.packets, "packet")}, ${bytes(a_to_b.bytes + b_to_a.bytes)}`)), body);
  return node;
}

// The packets of a conversation and the messages that set it up, in order.
function events(conversation) {
  const control = new Map(conversation.control.map((one) => [key(one.frame, one.segment), one]));
  const own = file.shown.filter((packet) => packet.c === conversation.id || control.has(key(packet.f, packet.s)));
  return own.map((packet) => {
    const set = control.get(key(packet.f, packet.s));
    const { y, a: fromA } = packet;
    const parts = set ? [`CM ${set.message}`, set.summary] : y.split("  ").map((part) => part.trim()).filter(Boolean);
    const ends = [conversation.a.qpn, conversation.b.qpn].filter((qpn) => qpn !== null).map((qpn) => hex(qpn, 6));
    const detail = parts.slice(1).filter((part) => !ends.some((qpn) => part === `QP ${qpn}` || part === `from QP ${qpn}`));
    const setup = /^(CM|SET-UP|Set-up)/.test(parts[0]) || conversation.transport === "UD" && /_(REQ|RESP|ACCEPT|CONFIRM|REQUEST)\b/.test(parts[0]);
    return { packet, fromA: set ? set.from_a : fromA, title: parts[0].replace(new RegExp(`^${conversation.transport} `), ""), detail: detail.join(" · "), control: Boolean(set) || setup,
      name: set ? set.message : "", notes: packet.n || [], left: set && packet.c !== conversation.id ? 0 : packet.x };
  });
}

function phaseOf(event) {
  if (!event.control) return "Data";
  return /DREQ|DREP/.test(event.name || event.title) ? "Disconnection" : "Connection set-up";
}

function unfold(conversation, body) {
  const all = events(conversation);
  const states = new Map();
  for (const state of conversation.states) {
    const name = key(state.frame, state.segment);
    states.set(name, [...(states.get(name) || []), state]);
  }
  const list = el("div", { class: "rows" });
  const found = el("span", { class: "muted" });
  let query = "", folded = true, only = false, limit = ROWS;
  const search = el("input", { type: "search", placeholder: "Search this ladder", "aria-label": "Search this ladder", oninput: () => { query = search.value.trim().toLowerCase(); limit = ROWS; draw(); } });
  const check = (label, value, change) => { const box = el("input", { type: "checkbox", onchange: () => { change(box.checked); draw(); } }); box.checked = value; return el("label", null, box, " ", label); };
  body.append(el("div", { class: "tools" }, search, check("fold middle packets", true, (value) => { folded = value; }), check("anomalies only", false, (value) => { only = value; }), found),
    el("div", { class: "rows" }, el("div", { class: "ends" }, el("span"), el("div", null, el("span", { class: "k0" }, endpoint(conversation.a)), el("span", { class: "k1" }, endpoint(conversation.b)))), list));
  list.classList.remove("rows");

  function draw() {
    const matches = (event) => (!query || `${event.packet.f} ${event.title} ${event.detail} ${event.packet.y} ${event.notes.map((note) => note[2]).join(" ")}`.toLowerCase().includes(query)) && (!only || event.notes.length > 0);
    const chosen = all.filter(matches);
    const rows = [];
    let phase = null, before = null;
    const pause = longPause(all);
    for (let at = 0; at < chosen.length; at++) {
      const event = chosen[at];
      if (phaseOf(event) !== phase && !query && !only) { phase = phaseOf(event); if (conversation.control.length || phase !== "Data") rows.push(between(el("div", { class: "phase" }, phase))); }
      if (event.left && !query && !only) rows.push(between(el("div", { class: "between" }, `… ${plural(event.left, "packet")} not shown …`)));
      if (before && !query && !only && event.packet.t - before.packet.t >= pause) rows.push(between(el("div", { class: "between" }, `${duration(event.packet.t - before.packet.t)} later`)));
      for (const [severity, kind, text] of event.notes) if (MISSING.has(kind)) rows.push(lost(event, severity, text, kind));
      let run = at;
      while (folded && !query && !only && run + 1 < chosen.length && joins(event, chosen[run + 1])) run++;
      rows.push(row(event));
      if (run - at >= FOLD) {
        const inside = chosen.slice(at + 1, run);
        const fold = between(el("div", { class: "between" }, el("button", { type: "button", onclick: () => fold.replaceWith(...inside.map(row)) }, `… ${count(inside.length)} × ${event.title} …`)));
        rows.push(fold, row(chosen[run]));
        at = run;
      }
      before = chosen[at];
    }
    const end = file.left_out[conversation.id];
    if (end && !query && !only) rows.push(between(el("div", { class: "between" }, `… ${plural(end, "packet")} not shown …`)));
    for (const event of all) for (const [severity, kind, text] of event.notes) if (ENDED.has(kind)) rows.push(between(el("div", { class: `note ${severity}` }, "✗ ", text)));
    found.textContent = query || only ? `${plural(chosen.length, "packet")} found` : "";
    list.replaceChildren(...rows.slice(0, limit));
    if (rows.length > limit) list.append(el("button", { class: "more", type: "button", onclick: () => { limit *= 4; draw(); } }, `Show more of ${count(rows.length)} rows`));
    if (!rows.length) list.append(el("p", { class: "empty" }, "Nothing found."));
  }

  function row(event) {
    const { packet, fromA } = event;
    const again = event.notes.some(([, kind]) => AGAIN.has(kind));
    const shown = event.notes.filter(([, kind]) => !MISSING.has(kind) && !ENDED.has(kind));
    const worst = shown.some(([severity]) => severity === "error") ? "error" : shown.some(([severity]) => severity === "warning") ? "warning" : "";
    const qp = states.get(key(packet.f, packet.s)) || [];
    const badges = qp.map((state) => el("span", { class: `qp ${state.of_a ? "a" : "b"} ${state.state}`, title: "State of the queue pair, inferred from the packets" }, state.state));
    const text = [el("b", null, highlighted(event.title, query)), event.detail && el("em", null, highlighted(event.detail, query))];
    const arrow = fromA ? [el("i", { class: "line" }), text, el("i", { class: "line long" }), el("i", { class: "tip-r" })] : [el("i", { class: "tip-l" }), el("i", { class: "line" }), text, el("i", { class: "line long" })];
    return el("div", { class: `lrow packet ${fromA ? "forth" : "back"} ${event.control ? "control" : ""} ${again ? "again" : ""} ${worst} ${qp.some((state) => state.of_a) ? "qp-a" : ""} ${qp.some((state) => !state.of_a) ? "qp-b" : ""}`, "data-packet": key(packet.f, packet.s), onclick: () => { location.hash = `#packet-${key(packet.f, packet.s)}`; } },
      el("span", { class: "fr" }, number(packet)), el("span", { class: "tm" }, clock(packet.t, file.duration_ns)),
      el("div", { class: "lane" }, badges, el("div", { class: "arrow" }, arrow), shown.map(([severity, , note]) => el("div", { class: `note ${severity}` }, "↳ ", highlighted(note, query)))));
  }

  draw();
}

function lost(event, severity, text, kind) {
  const label = el("b", null, text.split(": ")[0]);
  const fromA = event.fromA;
  const arrow = fromA ? [el("i", { class: "line" }), label, el("i", { class: "line" }), el("span", { class: "x" }, "✗")] : [el("i", { class: "line long hidden" }), el("span", { class: "x" }, "✗"), el("i", { class: "line" }), label, el("i", { class: "line" })];
  const lane = el("div", { class: "arrow" }, arrow);
  if (!fromA) lane.style.justifyContent = "flex-end";
  return el("div", { class: `lrow lost again ${kind}` }, el("span"), el("span"), el("div", { class: "lane", title: text }, lane));
}

const between = (content) => el("div", { class: "lrow" }, el("span"), el("span"), el("div", { class: "lane" }, content));

function joins(event, next) {
  return /Middle/.test(event.title) && event.title === next.title && event.fromA === next.fromA && !event.notes.length && !next.notes.length && !next.left;
}

// A pause is shown if it is much longer than usual and a visible part of the whole.
function longPause(all) {
  const distances = [];
  for (let at = 1; at < all.length; at++) distances.push(all[at].packet.t - all[at - 1].packet.t);
  distances.sort((x, y) => x - y);
  const median = distances[distances.length >> 1] || 0;
  const total = all.length ? all.at(-1).packet.t - all[0].packet.t : 0;
  return Math.max(20000, median * 20, total / 20);
}

// The text with matches of the query marked; nodes, never markup.
function highlighted(text, query) {
  if (!query) return text;
  const parts = [], low = text.toLowerCase();
  let at = 0;
  for (let next = low.indexOf(query); next >= 0; next = low.indexOf(query, at)) {
    parts.push(text.slice(at, next), el("mark", null, text.slice(next, next + query.length)));
    at = next + query.length;
  }
  return [...parts, text.slice(at)];
}
