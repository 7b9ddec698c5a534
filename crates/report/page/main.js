// The page: header, navigation, sections of the chosen file, links.
function theme() {
  const media = matchMedia("(prefers-color-scheme: dark)");
  let chosen = null;
  try { chosen = localStorage.getItem("ferroce-theme"); } catch { /* Storage may be disabled. */ }
  const apply = () => document.documentElement.setAttribute("data-theme", chosen || (media.matches ? "dark" : "light"));
  media.addEventListener("change", apply);
  apply();
  return el("button", { class: "icon", type: "button", id: "theme", title: "Light or dark", "aria-label": "Switch between light and dark", onclick: () => {
    chosen = document.documentElement.getAttribute("data-theme") === "dark" ? "light" : "dark";
    try { localStorage.setItem("ferroce-theme", chosen); } catch { /* As above. */ }
    apply();
  } }, "◐");
}

function logo() {
  return svg("svg", { viewBox: "0 0 24 24", "aria-hidden": "true" }, svg("g", { class: "k0" }, svg("path", { d: "M4 3v18M20 3v18", stroke: "currentColor", "stroke-width": 2, fill: "none" }), svg("path", { d: "M5 8h12l-3-3M5 8", stroke: "currentColor", "stroke-width": 2, fill: "none" })),
    svg("g", { class: "k1" }, svg("path", { d: "M19 16H7l3 3", stroke: "currentColor", "stroke-width": 2, fill: "none" })));
}

const main = el("main");
const menu = el("nav", { "aria-label": "Sections" });

function render() {
  const bad = file.topics.filter((topic) => topic.severity !== "info").length;
  const parts = [["Summary", summary()], ["Diagnosis", diagnosis(), bad || "", bad > 0], ["Timeline", timeline()], ["Traffic", ioGraph()], ["RDMA against TCP", versus()], ["Conversations", conversations(), count(file.conversations_total)], ["Latency", latency()],
    ["In flight, PSNs", flight()], ["Ladders", ladders()], ["Packets", packets(), count(file.shown.length)], ["Protocols", protocols()]].filter(([, node]) => node);
  const left = file.packets - file.shown.length;
  main.replaceChildren(...parts.map(([, node]) => node), el("footer", null,
    `Written by Ferroce ${data.version}. This file is complete: it loads nothing from the network. `,
    left > 0 ? `All numbers are those of the whole capture; ${count(left)} packets are counted but not shown one by one. --packets N shows more.` : "All packets of the capture are in it.", " Queue pair states are inferred from the packets."));
  menu.replaceChildren(...parts.map(([name, node, note, alarm]) => el("a", { href: `#${node.id}` }, name, note && el("span", { class: alarm ? "bad" : "" }, note))));
}

function follow() {
  const hash = location.hash.slice(1);
  if (hash.startsWith("packet-")) openPacket(hash.slice(7));
  else if (hash.startsWith("ladder-")) {
    const target = document.getElementById(hash);
    if (target) { closePacket(); target.open = true; target.scrollIntoView(); }
  }
}

const tabs = data.files.length > 1 ? data.files.map((one) => el("button", { type: "button", role: "tab", title: one.path, "aria-selected": String(one === file), onclick: (event) => {
  for (const tab of tabs) tab.setAttribute("aria-selected", String(tab === event.currentTarget));
  closePacket();
  useFile(one);
  render();
  scrollTo(0, 0);
} }, one.path.split("/").pop())) : [el("span", { class: "only", title: file.path }, file.path)];

document.body.prepend(el("header", { class: "top" }, el("div", { class: "brand" }, logo(), "Ferroce", el("small", null, "report")), el("div", { class: "files", role: data.files.length > 1 ? "tablist" : null }, tabs), theme()),
  el("div", { class: "frame" }, menu, main));
document.title = `${file.path.split("/").pop()} – Ferroce report`;
useFile(file);
render();
follow();
addEventListener("hashchange", follow);
addEventListener("keydown", (event) => { if (event.key === "Escape") closePacket(); });
document.documentElement.setAttribute("data-ready", "");
