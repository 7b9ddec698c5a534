// Charts over time, drawn as SVG. A chart shows the points of a shared history within a time window; the pointer over one
// chart marks the same time in all.

import { h, setAttribute, setText, svg } from "./dom.js";
import { short } from "./format.js";

const HEIGHT = 150;
const LEFT = 68;
const RIGHT = 8;
const TOP = 8;
const BOTTOM = 20;
const DOT = 1.5;
const SPARK_POINTS = 60;

// Round numbers that divide 0 to `limit` into up to `count` parts.
export function ticks(limit, count) {
  if (!(limit > 0)) return [0];
  const raw = limit / count;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((candidate) => candidate >= raw * 0.999);
  const found = [];
  for (let value = 0; value <= limit * 1.0001; value += step) found.push(value);
  return found;
}

const roundUp = (value) => {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 1.5, 2, 3, 4, 5, 6, 8, 10].map((factor) => factor * power).find((candidate) => candidate >= value * 0.999);
};

// Points in a row that have a value.
function runs(points, hasValue) {
  const found = [[]];
  for (const point of points) {
    if (hasValue(point)) found.at(-1).push(point);
    else if (found.at(-1).length > 0) found.push([]);
  }
  return found.filter((run) => run.length > 0);
}

const pair = (x, y) => `${x.toFixed(1)} ${y.toFixed(1)}`;

// A line, or a dot where there is only one point: a path of one point is invisible.
const stroke = (places) => {
  if (places.length > 1) return `M${places.map(([x, y]) => pair(x, y)).join("L")}`;
  return places.map(([x, y]) => `M${pair(x - DOT, y)}a${DOT} ${DOT} 0 1 0 ${2 * DOT} 0a${DOT} ${DOT} 0 1 0 ${-2 * DOT} 0`).join("");
};

// Lines break where points have no value.
const path = (points, x, y) => runs(points, (point) => y(point) != null).map((run) => stroke(run.map((point) => [x(point), y(point)]))).join("");

// The area between two lines, in one piece for each run of points that have both.
const area = (points, x, upper, lower) =>
  runs(points, (point) => upper(point) != null && lower(point) != null)
    .filter((run) => run.length > 1)
    .map((run) => {
      const bottom = run.map((point) => pair(x(point), lower(point))).reverse();
      return `M${[...run.map((point) => pair(x(point), upper(point))), ...bottom].join("L")}Z`;
    })
    .join("");

export class TimeChart {
  // `series`: {key, label, tone}. `kind`: "mirror" (the first above, the second below zero), "band" (logarithmic
  // percentiles) or "bars" (stacked). `format` writes values of the axis, and of the legend unless `legend` does.
  constructor({ title, kind, series, format, legend = format, hint, focus }) {
    Object.assign(this, { kind, series, format, legend, focus });
    this.values = series.map((one) => h("b", { text: "–" }));
    this.headline = h("div", { class: "headline" });
    const keys = series.map((one, index) =>
      h("span", { class: "key" }, h("i", { class: `tone-${one.tone}` }), one.label, this.values[index]),
    );
    this.when = h("span", { class: "quiet when" });
    this.plot = svg("svg", { class: `plot ${kind}`, height: HEIGHT, role: "img", "aria-label": title });
    this.element = h(
      "figure",
      { class: "card chart" },
      h("figcaption", { class: "bar" }, h("h2", { text: title, title: hint }), this.when, h("div", { class: "grow" }), this.headline),
      this.plot,
      h("div", { class: "legend" }, ...keys),
    );
    this.width = 0;
    this.grid = svg("g", { class: "grid" });
    this.shapes = svg("g");
    this.cursor = svg("line", { class: "cursor", y1: TOP, y2: HEIGHT - BOTTOM, visibility: "hidden" });
    this.plot.append(this.grid, this.shapes, this.cursor);
    this.parts = series.map((one) => [
      svg("path", { class: `fill tone-${one.tone}` }),
      svg("path", { class: `line tone-${one.tone}` }),
    ]);
    for (const parts of this.parts) this.shapes.append(...parts);
    this.plot.addEventListener("pointermove", (event) => {
      const box = this.plot.getBoundingClientRect();
      const share = (event.clientX - box.left - LEFT) / (this.width - LEFT - RIGHT);
      this.focus(share >= 0 && share <= 1 ? share : null);
    });
    this.plot.addEventListener("pointerleave", () => this.focus(null));
    new ResizeObserver(() => {
      const width = Math.floor(this.plot.getBoundingClientRect().width);
      if (width !== this.width) {
        this.width = width;
        this.draw();
      }
    }).observe(this.plot);
  }

  // Draws the points from `from` to `to`. `focused` is where the pointer is, from 0 to 1.
  show(points, from, to, focused) {
    Object.assign(this, { points: points.filter(({ time }) => time >= from && time <= to), from, to, focused });
    this.draw();
  }

  draw() {
    if (!this.points || this.width < LEFT + RIGHT + 10) return;
    const { points, from, to } = this;
    const right = this.width - RIGHT;
    const x = (time) => LEFT + ((time - from) / (to - from)) * (right - LEFT);
    const at = (point) => x(point.time);
    const base = HEIGHT - BOTTOM;
    const marks = this[this.kind](points, at, base, right);
    this.drawGrid(marks, x, base, right);
    const share = this.focused;
    setAttribute(this.cursor, "visibility", share == null ? "hidden" : "visible");
    let point = points.at(-1);
    if (share != null) {
      const time = from + share * (to - from);
      point = points.reduce((best, one) => (Math.abs(one.time - time) < Math.abs(best.time - time) ? one : best), point);
      const position = at(point ?? { time });
      setAttribute(this.cursor, "x1", position);
      setAttribute(this.cursor, "x2", position);
    }
    setText(this.when, share == null || !point ? "" : new Date(point.time).toLocaleTimeString("en-GB"));
    this.series.forEach((one, index) => setText(this.values[index], point ? this.legend(point[one.key]) : "–"));
  }

  mirror(points, at, base, right) {
    const [up, down] = this.series;
    const most = points.reduce((most, point) => Math.max(most, point[up.key], point[down.key]), 0);
    const limit = most > 0 ? roundUp(most) : 1;
    const middle = (TOP + base) / 2;
    const y = (value) => middle - (value / limit) * (middle - TOP);
    [1, -1].forEach((sign, index) => {
      const key = this.series[index].key;
      const value = (point) => y(sign * point[key]);
      setAttribute(this.parts[index][0], "d", area(points, at, value, () => middle));
      setAttribute(this.parts[index][1], "d", path(points, at, value));
    });
    if (most === 0) return [{ y: middle, text: "0", axis: true }];
    const steps = ticks(limit, 2).filter((value) => value > 0);
    return [
      { y: middle, text: "0", axis: true },
      ...steps.flatMap((value) => [1, -1].map((sign) => ({ y: y(sign * value), text: this.format(value) }))),
    ];
  }

  band(points, at, base) {
    const values = points.flatMap((point) => this.series.map((one) => point[one.key])).filter((value) => value > 0);
    for (const parts of this.parts) for (const part of parts) setAttribute(part, "d", "");
    if (values.length === 0) return [{ y: base, text: "", axis: true }];
    const low = Math.floor(Math.log10(Math.min(...values)));
    const high = Math.max(low + 1, Math.ceil(Math.log10(Math.max(...values))));
    const y = (value) => (value > 0 ? base - ((Math.log10(value) - low) / (high - low)) * (base - TOP) : null);
    const line = (index) => (point) => y(point[this.series[index].key]);
    const last = this.series.length - 1;
    setAttribute(this.parts[0][0], "d", area(points, at, line(last), line(0)));
    this.series.forEach((_, index) => setAttribute(this.parts[index][1], "d", path(points, at, line(index))));
    const powers = Array.from({ length: high - low + 1 }, (_, index) => 10 ** (low + index));
    const every = Math.ceil(powers.length / 5);
    return powers
      .filter((_, index) => index % every === 0)
      .map((value) => ({ y: y(value), text: this.format(value), axis: value === powers[0] }));
  }

  bars(points, at, base, right) {
    const sum = (point) => this.series.reduce((sum, one) => sum + point[one.key], 0);
    const most = points.reduce((most, point) => Math.max(most, sum(point)), 0);
    const limit = most > 0 ? roundUp(most) : 1;
    const scale = (base - TOP) / limit;
    const step = points.length > 1 ? (at(points.at(-1)) - at(points[0])) / (points.length - 1) : 6;
    const width = Math.max(1, Math.min(10, step - 1));
    const below = new Map();
    this.series.forEach((one, index) => {
      let text = "";
      for (const point of points) {
        const value = point[one.key];
        if (!(value > 0)) continue;
        // A bar is the interval before its point; the first may begin before the window.
        const position = Math.max(LEFT, Math.min(at(point) - width, right - width));
        const bottom = base - (below.get(point) ?? 0);
        // A single event stays visible beside thousands.
        const height = Math.max(2, value * scale);
        below.set(point, (below.get(point) ?? 0) + height);
        text += `M${position.toFixed(1)} ${bottom.toFixed(1)}v${-height.toFixed(1)}h${width.toFixed(1)}v${height.toFixed(1)}Z`;
      }
      setAttribute(this.parts[index][0], "d", text);
    });
    if (most === 0) return [{ y: base, text: "0", axis: true }];
    return ticks(limit, 3).map((value) => ({ y: base - value * scale, text: this.format(value), axis: value === 0 }));
  }

  drawGrid(marks, x, base, right) {
    const span = (this.to - this.from) / 1000;
    const step = [10, 30, 60, 120, 300].find((seconds) => span / seconds <= 6) ?? 600;
    const times = [];
    for (let ago = 0; ago <= span; ago += step) times.push(ago);
    const lines = marks.flatMap((mark) => [
      svg("line", { class: mark.axis ? "axis" : "", x1: LEFT, x2: right, y1: mark.y, y2: mark.y }),
      svg("text", { x: LEFT - 6, y: mark.y + 3.5, "text-anchor": "end", text: short(mark.text) }),
    ]);
    const labels = times.map((ago) =>
      svg("text", {
        x: x(this.to - ago * 1000),
        y: HEIGHT - 5,
        "text-anchor": ago === 0 ? "end" : "middle",
        text: ago === 0 ? "now" : ago % 60 === 0 ? `−${ago / 60} min` : `−${ago} s`,
      }),
    );
    this.grid.replaceChildren(...lines, ...labels.filter((label) => label.getAttribute("x") > LEFT + 14));
  }
}

// A line without axes, in the rows of a table. The newest value is at the right end; `most` is the top.
export function sparkline(values, most, width, height) {
  if (!values.some((value) => value > 0)) return "";
  const shown = values.slice(-SPARK_POINTS);
  const step = (width - 2 * DOT) / (SPARK_POINTS - 1);
  const x = (index) => width - DOT - (shown.length - 1 - index) * step;
  const y = (value) => height - 2 - (value / most) * (height - 4);
  return stroke(shown.map((value, index) => [x(index), y(value)]));
}
