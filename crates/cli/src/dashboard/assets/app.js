// The page: asks for the state at each interval and hands it to the panels.

import { Anomalies } from "./anomalies.js";
import { RequestError, get } from "./api.js";
import { TimeChart } from "./chart.js";
import { Detail } from "./detail.js";
import { byId, h, setAttribute, setText } from "./dom.js";
import * as format from "./format.js";
import { Run } from "./run.js";
import { Tables } from "./tables.js";

const MAX_POINTS = 900;
const QP_POINTS = 120;
const MAX_MISSED = 5;
const WINDOWS = [["2 min", 120], ["5 min", 300], ["15 min", 900]];

const model = { points: [], qps: new Map(), window: 120, paused: false, focus: null, sequence: 0, received: 0, interval: 1 };

const historyOf = (key) => model.qps.get(key) ?? [];
const detail = new Detail({ historyOf });
const open = (key, anomaly) => key && detail.open(key, anomaly);
const tables = new Tables({ onOpen: open, historyOf });
const anomalies = new Anomalies({ onOpen: open });

const focus = (share) => {
  model.focus = share;
  drawCharts();
};
const perSecond = (value) => (value > 0 && value < 10 ? `${value.toFixed(1)}/s` : format.perSecond(Math.round(value)));
const charts = [
  new TimeChart({
    title: "Throughput",
    hint: "Bits per second of all RoCE packets, from the BTH to the ICRC, of all processes",
    kind: "mirror",
    format: format.bits,
    focus,
    series: [{ key: "tx", label: "sent", tone: "tx" }, { key: "rx", label: "received", tone: "rx" }],
  }),
  new TimeChart({
    title: "Latency",
    hint: "From the post of a send request to its completion; RC and XRC",
    kind: "band",
    format: format.nanos,
    focus,
    series: [{ key: "p50", label: "p50", tone: "latency" }, { key: "p90", label: "p90", tone: "latency-90" }, { key: "p99", label: "p99", tone: "latency-99" }],
  }),
  new TimeChart({
    title: "Recovery and errors",
    hint: "What the transports recovered from, and what was lost, per second",
    kind: "bars",
    format: perSecond,
    focus,
    // The headline has the unit.
    legend: (value) => perSecond(value).replace("/s", ""),
    series: [
      { key: "retransmits", label: "retransmits", tone: "f1" },
      { key: "timeouts", label: "timeouts", tone: "f2" },
      { key: "rnr", label: "RNR", tone: "f3" },
      { key: "sequence_errors", label: "sequence", tone: "f4" },
      { key: "corrupt", label: "corrupt", tone: "f5" },
      { key: "drops", label: "drops", tone: "f6" },
      { key: "congestion", label: "congestion", tone: "f7" },
    ],
  }),
];
byId("charts").append(...charts.map((chart) => chart.element));

function headlines(totals) {
  const big = (parts, label) => [h("b", { text: parts[0] }), h("span", { text: `${parts[1]}${label}` })];
  charts[0].headline.replaceChildren(
    ...big(format.bitsParts(totals.tx), " sent"),
    h("em", { text: `${format.count(totals.messages)} msg/s` }),
    h("em", { text: `${format.count(totals.tx_packets + totals.rx_packets)} packets/s` }),
  );
  charts[1].headline.replaceChildren(...big(format.nanosParts(totals.p50), " median"));
  const faults = totals.retransmits + totals.timeouts + totals.rnr + totals.sequence_errors + totals.corrupt + totals.drops + totals.congestion;
  charts[2].headline.replaceChildren(...big(format.countParts(Math.round(faults)), "/s"));
  charts[2].headline.classList.toggle("alarm", faults > 0);
}

const newest = () => model.points.at(-1)?.time;

function drawCharts() {
  const to = (model.paused ? model.pausedAt : newest()) ?? Date.now();
  for (const chart of charts) chart.show(model.points, to - model.window * 1000, to, model.focus);
}

function remember(state) {
  // The history that was asked for may already have it. The first sample has no rates.
  if (state.sequence > 1 && !(state.totals.time <= newest())) {
    model.points.push(state.totals);
    if (model.points.length > MAX_POINTS) model.points.shift();
  }
  const seen = new Set();
  for (const { key, tx, rx, p50, p99 } of state.qps) {
    seen.add(key);
    const history = model.qps.get(key) ?? [];
    history.push({ time: state.totals.time, tx, rx, p50, p99 });
    if (history.length > QP_POINTS) history.shift();
    model.qps.set(key, history);
  }
  // The drawer may still show one that has ended.
  for (const key of model.qps.keys()) if (!seen.has(key) && key !== detail.key) model.qps.delete(key);
}

function show(state) {
  setText(byId("host"), state.host);
  const { counts } = state;
  const plural = (count, noun) => `${format.whole(count)} ${noun}${count === 1 ? "" : noun.endsWith("s") ? "es" : "s"}`;
  setText(byId("counts"), `${plural(counts.processes, "process")} · ${plural(counts.qps, "QP")} · ${format.memory(counts.memory)} registered`);
  headlines(state.totals);
  tables.show(state);
  anomalies.show(state.anomalies);
  drawCharts();
  detail.refresh();
}

function live(stage, message) {
  setAttribute(byId("live"), "class", `live ${stage}`);
  setText(byId("live-text"), message);
}

// Two requests may see the same sample, which is shown once.
async function poll() {
  let pause = model.interval * 1000;
  try {
    const state = await get("/api/state");
    byId("problem").hidden = true;
    model.interval = state.interval;
    if (state.sequence < model.sequence) location.reload();
    if (state.sequence > model.sequence) {
      // Browsers slow down pages that are not visible.
      if (model.sequence > 0 && state.sequence > model.sequence + MAX_MISSED) await loadHistory();
      model.sequence = state.sequence;
      remember(state);
      if (!model.paused) show(state);
      model.last = state;
      pause = Math.max(100, pause - 20);
    } else {
      pause = Math.max(50, pause / 8);
    }
    live(model.paused ? "paused" : "on", model.paused ? "paused" : "live");
  } catch (error) {
    live("off", "no connection");
    const refused = error instanceof RequestError && error.status === 403;
    setText(byId("problem"), refused ? error.message : "The dashboard does not answer. Was it stopped? It is asked again every second.");
    byId("problem").hidden = false;
    pause = 1000;
  }
  setTimeout(poll, pause);
}

function controls() {
  const buttons = WINDOWS.map(([label, seconds]) =>
    h("button", { type: "button", text: label, "aria-pressed": String(seconds === model.window), onclick: () => chooseWindow(seconds) }),
  );
  const chooseWindow = (seconds) => {
    model.window = seconds;
    buttons.forEach((button, index) => setAttribute(button, "aria-pressed", WINDOWS[index][1] === seconds));
    drawCharts();
  };
  byId("window").append(...buttons);
  byId("pause").addEventListener("click", () => {
    model.paused = !model.paused;
    model.pausedAt = newest();
    setText(byId("pause"), model.paused ? "Resume" : "Pause");
    live(model.paused ? "paused" : "on", model.paused ? "paused" : "live");
    if (!model.paused && model.last) show(model.last);
  });
  const root = document.documentElement;
  const stored = localStorage.getItem("ferroce-theme");
  if (stored) root.dataset.theme = stored;
  byId("theme").addEventListener("click", () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    localStorage.setItem("ferroce-theme", root.dataset.theme);
  });
}

async function loadHistory() {
  model.points = (await get("/api/history")).points;
}

async function start() {
  controls();
  // A failure is reported by the first poll.
  await loadHistory().catch(() => {});
  poll();
  new Run().start().catch(() => {});
}

start();
