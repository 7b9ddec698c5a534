// The packets of a queue pair as a ladder: time downwards, the queue pair at the left, its peer at the right.

import { get } from "./api.js";
import { h, setAttribute, setText } from "./dom.js";
import * as format from "./format.js";

const REASONS = { retransmission: "sent again", nak: "NAK", congestion: "congestion" };
const keyOf = (packet) => `${packet.time}/${packet.psn}/${packet.sent}/${packet.title}`;

export class Ladder {
  constructor(key, preferRecovery) {
    this.key = key;
    // Until the user chooses one.
    this.preferRecovery = preferRecovery;
    this.tab = "packets";
    this.tabs = { packets: this.button("packets", "Last packets"), recovery: this.button("recovery", "Around losses and NAKs") };
    this.note = h("span", { class: "quiet" });
    this.here = h("span");
    this.there = h("span");
    this.rungs = h("ol", { class: "rungs", "aria-label": "Packets" });
    this.meaning = h("p", { class: "quiet meaning" });
    // What one points at must not move away.
    this.rungs.addEventListener("pointerenter", () => (this.held = true));
    this.rungs.addEventListener("pointerleave", () => (this.held = false));
    this.element = h(
      "section",
      { class: "ladder", "aria-label": "Packets of the queue pair" },
      h("div", { class: "bar" }, h("div", { class: "tabs", role: "tablist" }, ...Object.values(this.tabs)), h("div", { class: "grow" }), this.note),
      h("div", { class: "ends quiet" }, this.here, this.there),
      this.rungs,
      this.meaning,
    );
  }

  button(tab, text) {
    return h("button", { type: "button", role: "tab", text, onclick: () => this.choose(tab) });
  }

  choose(tab) {
    this.tab = tab;
    this.preferRecovery = false;
    this.draw();
  }

  ends(here, there) {
    setText(this.here, here);
    setText(this.there, there);
  }

  async refresh() {
    let data;
    try {
      data = await get(`/api/packets?key=${encodeURIComponent(this.key)}`);
    } catch (error) {
      setText(this.meaning, error.message);
      return;
    }
    if (this.held) return;
    this.data = data;
    if (this.preferRecovery && data.episodes.length > 0) this.tab = "recovery";
    this.draw();
  }

  draw() {
    if (!this.data) return;
    const { packets, episodes, dropped } = this.data;
    for (const [name, button] of Object.entries(this.tabs)) setAttribute(button, "aria-selected", name === this.tab);
    setText(this.note, dropped > 0 ? `${format.whole(dropped)} packets came too fast to be shown` : "");
    const atEnd = this.rungs.scrollTop + this.rungs.clientHeight >= this.rungs.scrollHeight - 4;
    const items =
      this.tab === "packets"
        ? packets.map((packet) => this.rung(packet))
        : episodes.flatMap(({ reason, packets }) => {
            const first = packets.find((packet) => packet.reason);
            return [h("li", { class: "when", text: `${format.clock(first.time)}: ${reason === "nak" ? "NAK" : reason}` }), ...packets.map((packet) => this.rung(packet))];
          });
    this.rungs.replaceChildren(...items);
    if (atEnd) this.rungs.scrollTop = this.rungs.scrollHeight;
    if (items.length === 0) {
      setText(this.meaning, this.tab === "packets" ? "No packet yet: they are collected while a queue pair is open." : "No retransmission, NAK or congestion mark was seen.");
    } else if (!this.chosen) {
      setText(this.meaning, "A click on a packet explains it.");
    }
  }

  rung(packet) {
    const time = packet.after_ns == null ? format.clock(packet.time) : `+${format.nanos(packet.after_ns)}`;
    const kinds = ["rung", packet.sent ? "sent" : "received", packet.role, packet.reason, this.chosen === keyOf(packet) && "chosen"];
    const note = packet.reason && h("em", { text: REASONS[packet.reason] });
    // The destination QP is at the end of the arrow.
    const label = packet.summary.replace(/ +QP 0x[0-9a-f]+/, "");
    const arrow = h("span", { class: "arrow" }, h("b", { text: label, title: packet.summary }), note);
    const choose = () => {
      this.chosen = keyOf(packet);
      setText(this.meaning, packet.explanation);
      for (const other of this.rungs.children) other.classList.toggle("chosen", other === rung);
    };
    const onkeydown = (event) => event.key === "Enter" && choose();
    const rung = h("li", { class: kinds.filter(Boolean).join(" "), tabindex: 0, onclick: choose, onkeydown }, h("time", { text: time }), arrow);
    return rung;
  }
}
