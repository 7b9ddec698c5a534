// Charts drawn as SVG. Points are [x, y]; x is nanoseconds unless the axis says otherwise.
const PLOT = { width: 1000, height: 260, left: 84, right: 14, top: 12, bottom: 30 };

function niceStep(span, parts) {
  const rough = Math.max(span / parts, Number.MIN_VALUE);
  const power = 10 ** Math.floor(Math.log10(rough));
  const share = rough / power;
  return power * (share <= 1 ? 1 : share <= 2 ? 2 : share <= 5 ? 5 : 10);
}

function linear(low, high, parts) {
  if (!(high > low)) high = low + 1;
  const step = niceStep(high - low, parts);
  const ticks = [];
  for (let at = Math.ceil(low / step); at * step <= high * (1 + 1e-9); at++) ticks.push(at * step);
  return { low, high, ticks, at: (value) => (value - low) / (high - low) };
}

function logarithmic(low, high) {
  const [from, to] = [Math.log10(Math.max(low, 1)) - 0.05, Math.log10(Math.max(high, 2)) + 0.05];
  const ticks = [];
  for (let power = Math.floor(from); power <= to; power++) {
    for (const digit of to - from < 2.5 ? [1, 2, 5] : [1]) {
      const value = digit * 10 ** power;
      if (Math.log10(value) >= from && Math.log10(value) <= to) ticks.push(value);
    }
  }
  return { low: 10 ** from, high: 10 ** to, ticks, at: (value) => (Math.log10(Math.max(value, 1)) - from) / (to - from) };
}

// options: series [{name, colour, points, step, area, dots}], x and y {format, log, max}, height, label.
function lineChart(options) {
  const box = { ...PLOT, width: options.width || PLOT.width, height: options.height || PLOT.height };
  const node = el("div", { class: "chart", role: "img", "aria-label": options.label });
  const off = new Set();
  const [right, bottom] = [box.width - box.right, box.height - box.bottom];

  function draw() {
    const series = options.series.filter((one) => !off.has(one));
    const all = series.flatMap((one) => one.points);
    const lowX = options.x.low ?? all.reduce((least, point) => Math.min(least, point[0]), Infinity);
    const highX = options.x.high ?? all.reduce((most, point) => Math.max(most, point[0]), -Infinity);
    const top = all.reduce((most, point) => Math.max(most, point[1]), 0);
    const x = options.x.log ? logarithmic(lowX, highX) : linear(Number.isFinite(lowX) ? lowX : 0, Number.isFinite(highX) ? highX : 1, box.width / 125);
    const step = niceStep(top || 1, 4);
    const y = linear(0, Math.ceil((top || 1) / step) * step, 4);
    const px = (value) => box.left + x.at(value) * (right - box.left);
    const py = (value) => bottom - y.at(value) * (bottom - box.top);
    const picture = svg("svg", { viewBox: `0 0 ${box.width} ${box.height}` });
    for (const tick of y.ticks) picture.append(
      svg("line", { class: "grid", x1: box.left, x2: right, y1: py(tick), y2: py(tick) }),
      svg("text", { x: box.left - 8, y: py(tick) + 4, "text-anchor": "end" }, options.y.format(tick)));
    for (const tick of x.ticks) picture.append(
      svg("line", { class: "axis", x1: px(tick), x2: px(tick), y1: bottom, y2: bottom + 4 }),
      svg("text", { x: px(tick), y: bottom + 19, "text-anchor": "middle" }, options.x.format(tick)));
    picture.append(svg("line", { class: "axis", x1: box.left, x2: right, y1: bottom, y2: bottom }));
    for (const one of series) {
      const group = svg("g", { class: `k${one.colour % 7}` });
      if (one.dots) {
        for (const [at, value, packet] of one.points) group.append(set(svg("circle", { cx: px(at), cy: py(value), r: 3.4, fill: "currentColor" }), packet && { onclick: () => openPacket(packet) }));
      } else {
        let path = "", before = null;
        for (const [at, value] of one.points) {
          const [atX, atY] = [px(at).toFixed(1), py(value).toFixed(1)];
          path += before === null ? `M${atX} ${atY}` : one.step ? `H${atX}V${atY}` : `L${atX} ${atY}`;
          before = at;
        }
        if (one.area && one.points.length) group.append(svg("path", { class: "area", fill: "currentColor", d: `${path}L${px(one.points.at(-1)[0]).toFixed(1)} ${bottom}L${px(one.points[0][0]).toFixed(1)} ${bottom}Z` }));
        group.append(svg("path", { stroke: "currentColor", d: path }));
      }
      picture.append(group);
    }
    const cross = svg("line", { class: "cross hidden", y1: box.top, y2: bottom });
    picture.append(cross);
    const tip = el("div", { class: "tip hidden" });
    const lines = series.filter((one) => !one.dots && one.points.length);
    picture.addEventListener("pointermove", (event) => {
      const frame = picture.getBoundingClientRect();
      const share = ((event.clientX - frame.left) / frame.width * box.width - box.left) / (right - box.left);
      if (share < -0.01 || share > 1.01 || !lines.length) return tip.classList.add("hidden"), cross.classList.add("hidden");
      let nearest = null;
      for (const one of lines) for (const point of one.points) {
        const distance = Math.abs(x.at(point[0]) - share);
        if (!nearest || distance < nearest.distance) nearest = { distance, at: point[0] };
      }
      const rows = lines.map((one) => {
        let value = one.step || !options.exact ? null : undefined;
        for (const point of one.points) { if (options.exact ? point[0] === nearest.at : point[0] <= nearest.at) value = point[1]; }
        return [one, value];
      }).filter(([, value]) => value !== null && value !== undefined);
      tip.replaceChildren(el("b", null, options.x.format(nearest.at)), ...rows.slice(0, 14).map(([one, value]) =>
        el("div", null, el("span", null, el("i", { class: `key k${one.colour % 7}` }), one.name), el("span", null, (options.y.exact || options.y.format)(value)))));
      const at = px(nearest.at);
      set(cross, { x1: at, x2: at });
      tip.classList.remove("hidden"); cross.classList.remove("hidden");
      const left = at / box.width * frame.width;
      tip.style.top = "8px";
      tip.style.left = left > frame.width * 0.6 ? "auto" : `${left + 12}px`;
      tip.style.right = left > frame.width * 0.6 ? `${frame.width - left + 12}px` : "auto";
    });
    picture.addEventListener("pointerleave", () => { tip.classList.add("hidden"); cross.classList.add("hidden"); });
    node.replaceChildren(picture, tip, legend());
  }

  function legend() {
    if (options.series.length < 2) return el("div");
    return el("div", { class: "legend" }, options.series.map((one) => el("button", { type: "button", "aria-pressed": String(!off.has(one)), onclick: () => {
      if (!off.delete(one)) off.add(one);
      draw();
    } }, el("i", { class: `key k${one.colour % 7}` }), one.name)));
  }

  draw();
  return node;
}
