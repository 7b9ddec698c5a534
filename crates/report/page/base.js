// Data, elements and numbers. Text from the capture becomes text nodes only.
const data = JSON.parse(document.getElementById("data").textContent);
const SVG = "http://www.w3.org/2000/svg";

function add(node, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return node;
}

// Attributes whose names start with "on" are listeners.
function set(node, attributes) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "class") node.setAttribute("class", value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  return node;
}

const el = (tag, attributes, ...children) => add(set(document.createElement(tag), attributes), children);
const svg = (tag, attributes, ...children) => add(set(document.createElementNS(SVG, tag), attributes), children);

const count = (value) => Math.round(value).toLocaleString("en-US");
const plural = (value, one, many) => `${count(value)} ${value === 1 ? one : many || one + "s"}`;

// Three significant digits; `full` keeps zeroes at the end, so that columns align.
function scaled(value, units, base, full) {
  let unit = 0;
  while (Math.abs(value) >= base - 0.5 && unit + 1 < units.length) { value /= base; unit++; }
  const digits = unit === 0 && Number.isInteger(value) ? 0 : value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  const text = value.toFixed(digits);
  return `${digits && !full ? text.replace(/\.?0+$/, "") : text} ${units[unit]}`.trim();
}
const bytes = (value) => value < 10000 ? `${count(value)} B` : scaled(value, ["B", "kB", "MB", "GB", "TB"], 1000, true);
const bitRate = (value, full) => scaled(value, ["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"], 1000, full === true);
const packetRate = (value) => scaled(value, ["packets/s", "k packets/s", "M packets/s"], 1000);
const short = (value) => scaled(value, ["", "k", "M", "G"], 1000);
const hex = (value, digits) => "0x" + value.toString(16).padStart(digits, "0");

function duration(ns, full) {
  const size = Math.abs(ns);
  if (size < 1000) return `${ns} ns`;
  if (size >= 120e9) return `${Math.floor(ns / 60e9)} min ${Math.round(ns % 60e9 / 1e9)} s`;
  return scaled(ns, ["ns", "µs", "ms", "s"], 1000, full === true);
}

// A time since the start, with digits that tell neighbouring packets apart.
function clock(ns, total) {
  if (total >= 100e9) return (ns / 1e9).toFixed(6) + " s";
  if (total >= 100e6) return (ns / 1e6).toFixed(3) + " ms";
  return (ns / 1e3).toFixed(ns % 1000 ? 3 : 0).replace(/\B(?=(\d{3})+(?!\d))/g, (m, d, at, s) => s.lastIndexOf(".") >= 0 && at > s.lastIndexOf(".") ? "" : ",") + " µs";
}

// Summaries separate their parts by two spaces, which HTML would join.
const dotted = (text) => text.split(/ {2,}/).join(" · ");
const number = (packet) => packet.s ? `${count(packet.f)}.${packet.s}` : count(packet.f);
const key = (frame, segment) => segment ? `${frame}.${segment}` : `${frame}`;
const endpoint = (end) => end.qpn === null ? `${end.address} QP unseen` : `${end.address} QP ${hex(end.qpn, 6)}`;
const operationName = (name) => name.replace("RDMA_", "RDMA ").replace("COMPARE_SWAP", "COMPARE & SWAP").replace("FETCH_ADD", "FETCH & ADD").replace(/_/g, " ");
const severityName = { error: "error", warning: "warning", info: "note" };

function section(id, title, note, ...body) {
  const tools = el("div", { class: "tools" });
  const head = el("div", { class: "head" }, el("h2", null, title), note && el("span", { class: "muted" }, note), tools);
  const node = el("section", { id }, head, body);
  node.tools = tools;
  return node;
}

function segmented(options, chosen, change) {
  const buttons = options.map(([value, label]) => el("button", { type: "button", "aria-pressed": String(value === chosen), onclick: () => {
    for (const button of buttons) button.setAttribute("aria-pressed", String(button === node(value)));
    change(value);
  } }, label));
  const node = (value) => buttons[options.findIndex(([other]) => other === value)];
  return el("div", { class: "seg" }, buttons);
}

// A table whose columns sort: [title, class, value for sorting, cell].
function table(columns, rows, open, limit) {
  const body = el("tbody");
  const all = [...rows];
  let shown = limit || 50;
  let by = null, down = true;
  const more = el("button", { class: "more", type: "button", onclick: () => { shown *= 10; fill(); } });
  function fill() {
    body.replaceChildren(...all.slice(0, shown).map((row) => el("tr", open && { class: "link", onclick: () => open(row) },
      columns.map(([, kind, , cell]) => el("td", { class: kind }, cell(row))))));
    more.textContent = `Show more of ${count(all.length)}`;
    more.classList.toggle("hidden", all.length <= shown);
  }
  const head = el("tr", null, columns.map((column) => el("th", { class: column[1] }, !column[2] ? column[0] : el("button", { type: "button", onclick: () => {
    down = by === column ? !down : true;
    by = column;
    all.sort((x, y) => { const [a, b] = [column[2](x), column[2](y)]; return (a < b ? -1 : a > b ? 1 : 0) * (down ? -1 : 1); });
    fill();
  } }, column[0]))));
  fill();
  return el("div", { class: "scroll" }, el("table", null, el("thead", null, head), body), more);
}
