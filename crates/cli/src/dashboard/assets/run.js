// The form that runs demo, perf and compare. Its fields come from the server, which accepts no other values.

import { get, post } from "./api.js";
import { byId, h, setAttribute, setText } from "./dom.js";

const STAGES = { running: "running", succeeded: "done", failed: "failed", timed_out: "stopped after the time limit", stopped: "stopped" };

export class Run {
  async start() {
    const { allowed, offers } = await get("/api/offers");
    const place = byId("run");
    if (!allowed) {
      place.replaceChildren(h("p", { class: "note" }, "Start ", h("code", { text: "ferroce dashboard --allow-run" }), " to run demo, perf and compare from here."));
      return;
    }
    this.offers = offers;
    this.command = h("select", { "aria-label": "Command", onchange: () => this.choose() }, ...offers.map((offer) => h("option", { text: offer.command })));
    this.summary = h("p", { class: "note" });
    this.fields = h("div", { class: "fields" });
    this.button = h("button", { type: "button", class: "primary", id: "run-start", text: "Run", onclick: () => this.run() });
    this.stopButton = h("button", { type: "button", class: "plain", text: "Stop", onclick: () => post("/api/run/stop").catch((error) => this.fail(error)) });
    this.status = h("span", { class: "quiet", id: "run-status", role: "status" });
    this.output = h("pre", { class: "output", id: "run-output", tabindex: 0, hidden: true });
    this.figure = h("img", { class: "figure", alt: "Chart of the result", hidden: true });
    this.wide = h("button", { type: "button", class: "plain", text: "Enlarge", hidden: true, onclick: () => this.enlarge() });
    place.replaceChildren(h("label", {}, h("span", { text: "Command" }), this.command), this.summary, this.fields, h("div", { class: "actions" }, this.button, this.stopButton, this.status, h("span", { class: "grow" }), this.wide), this.figure, this.output);
    this.choose();
    this.poll();
  }

  choose() {
    const offer = this.offers[this.command.selectedIndex];
    setText(this.summary, offer.summary);
    const field = (choice) => h("label", {}, h("span", { text: choice.label }), h("select", { "data-name": choice.name }, ...choice.values.map((value) => h("option", { text: value }))));
    this.fields.replaceChildren(...offer.choices.map(field));
  }

  async run() {
    const options = {};
    for (const select of this.fields.querySelectorAll("select")) options[select.dataset.name] = select.value;
    try {
      await post("/api/run", { command: this.command.value, options });
    } catch (error) {
      this.fail(error);
      return;
    }
    clearTimeout(this.timer);
    this.poll();
  }

  fail(error) {
    setText(this.status, error.message);
  }

  enlarge() {
    const isLarge = byId("run-card").classList.toggle("large");
    setText(this.wide, isLarge ? "Reduce" : "Enlarge");
  }

  async poll() {
    let job = null;
    try {
      ({ job } = await get("/api/run"));
    } catch (error) {
      this.fail(error);
    }
    const running = job?.stage === "running";
    this.button.disabled = running;
    this.stopButton.hidden = !running;
    if (job) {
      const atEnd = this.output.scrollTop + this.output.clientHeight >= this.output.scrollHeight - 4;
      setText(this.status, `${STAGES[job.stage]}, ${job.seconds.toFixed(1)} s`);
      const omitted = job.omitted > 0 ? `\n… ${job.omitted} bytes more` : "";
      setText(this.output, `$ ${job.command}\n${job.output}${job.errors}${omitted}`);
      this.output.hidden = this.wide.hidden = false;
      this.figure.hidden = !job.figure;
      // As an image, it cannot run scripts or load anything.
      if (job.figure) setAttribute(this.figure, "src", `data:image/svg+xml;charset=utf-8,${encodeURIComponent(job.figure)}`);
      this.output.dataset.stage = job.stage;
      if (atEnd && running) this.output.scrollTop = this.output.scrollHeight;
    }
    this.timer = setTimeout(() => this.poll(), running ? 400 : 5_000);
  }
}
