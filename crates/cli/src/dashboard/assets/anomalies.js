// The list of anomalies. A click opens the queue pair it concerns.

import { byId, h, reconcile, setAttribute, setText } from "./dom.js";
import * as format from "./format.js";

export class Anomalies {
  constructor({ onOpen }) {
    this.onOpen = onOpen;
  }

  show(anomalies) {
    reconcile(byId("anomalies"), anomalies, (one) => one.id, (one) => this.create(one), (element, one) => this.update(element, one));
    byId("no-anomalies").hidden = anomalies.length > 0;
    setText(byId("anomaly-count"), anomalies.length > 0 ? format.whole(anomalies.length) : "");
  }

  create(one) {
    const open = () => this.onOpen(one.qp, one);
    const button = h(
      "button",
      { type: "button", class: "anomaly", title: one.meaning, disabled: !one.qp, onclick: open },
      h("span", { class: "line" }, h("b", { text: one.title }), h("span", { class: "badge" }), h("span", { class: "grow" }), h("time", { class: "quiet" })),
      h("span", { class: "line quiet", text: `${one.qpn == null ? one.device : `QP ${format.qpn(one.qpn)}`} · ${one.process} ${one.pid}` }),
      h("span", { class: "meaning", text: one.meaning }),
    );
    return h("li", { class: one.severity, "data-counter": one.counter, "data-pid": one.pid }, button);
  }

  update(element, one) {
    setText(element.querySelector(".badge"), `× ${format.whole(one.count)}`);
    setText(element.querySelector("time"), format.clock(one.last));
    setAttribute(element.querySelector("time"), "datetime", new Date(one.last).toISOString());
  }
}
