// The panel that shows one packet: its bytes as a grid, coloured by header, and every field explained.
let file = data.files[0];
let index = new Map();
let panel = null;

function useFile(next) {
  file = next;
  index = new Map(file.shown.map((packet) => [key(packet.f, packet.s), packet]));
}

const packetLink = (frame, segment, text) => el("a", { href: `#packet-${key(frame, segment)}` }, text || `packet ${key(count(frame), segment)}`);

// Colours by the kind of header, so that a BTH looks the same in every packet.
const TINTS = { Ethernet: 1, VLAN: 1, IPv4: 2, IPv6: 2, GRH: 2, LRH: 1, UDP: 3, BTH: 4, Payload: 6, Data: 0, Trailer: 0, Pad: 0, ICRC: 7 };
const tint = (layer) => TINTS[layer[0]] ?? 5;

function closePacket() {
  if (panel) panel.remove();
  panel = null;
  if (location.hash.startsWith("#packet-")) history.replaceState(null, "", location.pathname + location.search);
}

function step(packet, by) {
  const same = file.shown.filter((one) => one.c === packet.c);
  return same[same.indexOf(packet) + by];
}

function openPacket(name) {
  const packet = index.get(String(name));
  if (!packet) return openMissing(name);
  const conversation = file.conversations.find((one) => one.id === packet.c);
  const go = (by, label, sign) => {
    const target = step(packet, by);
    return el("button", { class: "icon", type: "button", "aria-label": label, title: label, disabled: !target, onclick: () => { location.hash = `#packet-${key(target.f, target.s)}`; } }, sign);
  };
  const explain = el("div", { class: "explain", id: "explain" });
  const view = packet.l.length ? anatomy(packet, explain) : [el("p", { class: "empty" },
    `The bytes of this packet were left out to keep the page small: ferroce decode ${file.path} ${packet.f}`)];
  show(el("aside", { "aria-label": "Packet" },
    el("div", { class: "bar-top" }, el("h2", null, `Packet ${number(packet)}`),
      go(-1, "Previous packet of this conversation", "←"), go(1, "Next packet of this conversation", "→"),
      el("button", { class: "icon", type: "button", id: "close", "aria-label": "Close", onclick: closePacket }, "✕")),
    el("div", { class: "scrolling" },
      el("p", null, el("b", null, dotted(packet.y))),
      packet.n && packet.n.map(([severity, , text]) => el("div", null, el("span", { class: `badge ${severity}` }, severityName[severity]), " ", text)),
      packet.p && packet.p.map((text) => el("div", null, el("span", { class: "badge error" }, "problem"), " ", text)),
      el("dl", { class: "meta" },
        el("dt", null, "Time"), el("dd", null, `${clock(packet.t, file.duration_ns)} after the first packet`),
        packet.d && [el("dt", null, "Addresses"), el("dd", null, packet.d)],
        conversation && [el("dt", null, "Conversation"), el("dd", null, el("a", { href: `#ladder-${conversation.id}` }, `#${conversation.id} ${conversation.transport}`))],
        el("dt", null, "Length"), el("dd", null, `${count(packet.o)} bytes${packet.k < packet.o ? `, ${count(packet.k)} captured` : ""}`)),
      view)), key(packet.f, packet.s));
}

function openMissing(name) {
  show(el("aside", { "aria-label": "Packet" },
    el("div", { class: "bar-top" }, el("h2", null, `Packet ${name}`), el("button", { class: "icon", type: "button", id: "close", "aria-label": "Close", onclick: closePacket }, "✕")),
    el("div", { class: "scrolling" }, el("p", null, "This page does not contain the packet: it holds a limited number of packets of a large capture. To see it, run"),
      el("code", null, `ferroce decode ${file.path} ${name.split(".")[0]}`))));
}

function show(next, name) {
  for (const row of document.querySelectorAll(".lrow.current")) row.classList.remove("current");
  for (const row of document.querySelectorAll(".lrow.packet")) if (row.dataset.packet === name) row.classList.add("current");
  if (panel) panel.remove();
  panel = next;
  document.body.append(panel);
}

function anatomy(packet, explain) {
  const cells = [], rows = new Map();
  const total = packet.h.length / 2;
  const byteValue = (at) => parseInt(packet.h.substr(at * 2, 2), 16);
  // The innermost field or layer that a byte belongs to. Fields narrower than a byte share it: the first one wins.
  const owner = new Array(total).fill(null);
  for (const layer of packet.l) {
    for (let at = layer[1]; at < layer[1] + layer[2] && at < total; at++) owner[at] = { layer, field: null };
    for (const field of layer[4]) {
      const end = field[1] + Math.ceil((field[2] + field[3]) / 8);
      for (let at = field[1]; at < end && at < total; at++) if (owner[at] && !owner[at].field) owner[at] = { layer, field };
    }
  }
  function choose(layer, field) {
    for (const cell of cells) cell.classList.remove("on");
    for (const row of rows.values()) row.classList.remove("on");
    const [from, to] = field ? [field[1], field[1] + Math.ceil((field[2] + field[3]) / 8)] : [layer[1], layer[1] + layer[2]];
    for (let at = from; at < to && at < total; at++) cells[at].classList.add("on");
    if (!field) {
      explain.replaceChildren(el("h3", null, layer[0], " ", el("span", null, `bytes ${layer[1]} to ${layer[1] + layer[2] - 1}`)), el("p", null, layer[3]));
      return;
    }
    const [name, doc] = file.specs[field[0]];
    const row = rows.get(field);
    row.classList.add("on");
    row.closest("details").open = true;
    const width = field[3] % 8 === 0 && field[2] === 0 ? `${plural(field[3] / 8, "byte")} at offset ${field[1]}` : `${plural(field[3], "bit")} at offset ${field[1]}, bit ${field[2]}`;
    explain.replaceChildren();
    add(explain, [
      el("h3", null, `${layer[0]} · ${name.replace(/_/g, " ")}`, " ", el("span", null, width)),
      el("p", { class: "val" }, field[4], field[5] && field[5] !== field[4] && el("span", { class: "muted" }, `  ${field[5]}`), verdict(field[6])),
      doc && el("p", { class: "muted" }, doc), bits(field)]);
  }
  function bits(field) {
    if (field[3] % 8 === 0 && field[2] === 0) return null;
    const node = el("p", { class: "bits" });
    const end = Math.ceil((field[2] + field[3]) / 8) * 8;
    for (let bit = 0; bit < end && field[1] + (bit >> 3) < total; bit++) {
      const own = bit >= field[2] && bit < field[2] + field[3];
      const digit = byteValue(field[1] + (bit >> 3)) >> (7 - bit % 8) & 1;
      node.append(bit && bit % 8 === 0 ? " " : "", own ? el("b", null, digit) : document.createTextNode("·"));
    }
    return node;
  }
  const grid = el("div", { class: "bytes" });
  for (let at = 0; at < total; at++) {
    if (at % 16 === 0) grid.append(el("span", { class: "off" }, at.toString(16).padStart(4, "0")));
    const own = owner[at];
    const cell = el("button", { type: "button", tabindex: -1, class: own ? `t${tint(own.layer)}` : "", onclick: own && (() => choose(own.layer, own.field)) }, packet.h.substr(at * 2, 2));
    cells.push(cell);
    grid.append(cell);
  }
  const layers = packet.l.map((layer) => el("details", { class: "layer", open: ["BTH"].includes(layer[0]) },
    el("summary", { onclick: () => choose(layer, null) }, el("i", { class: `key t${tint(layer)}` }), el("b", null, layer[0]), el("span", null, dotted(layer[3]))),
    layer[4].length > 0 && el("table", null, el("tbody", null, layer[4].map((field) => {
      const row = el("tr", { onclick: () => choose(layer, field) }, el("td", null, file.specs[field[0]][0].replace(/_/g, " ")), el("td", null, field[4]),
        el("td", { class: "muted" }, field[5] !== field[4] && field[5], verdict(field[6])));
      rows.set(field, row);
      return row;
    })))));
  const first = packet.l.find((layer) => layer[0] === "BTH") || packet.l[0];
  choose(first, first[4].find((field) => file.specs[field[0]][0] === "opcode") || null);
  const cut = packet.k > total && el("p", { class: "muted" }, `${plural(packet.k - total, "more byte")} not shown`);
  return [explain, el("div", null, grid, cut), el("div", { class: "layers" }, layers)];
}

function verdict(name) {
  if (!name) return null;
  return el("span", { class: name === "correct" ? "ok" : name === "wrong" ? "wrong" : "muted" }, name === "correct" ? " ✓" : name === "wrong" ? " ✗ wrong" : " not checked");
}
