// Retraining: progress in the background, old and new side by side, and a person decides.

import { ask, tell } from "./api.js";
import { className, count, element, nodeLink, percent, say, table } from "./dom.js";

const EVERY = 1000;

// Returns the panel, a function that reads the state again, and one that ends the reading.
export async function retrainPanel(model, changed) {
  const place = element("section", { class: "panel", "aria-label": "Retraining", tabindex: "-1" });
  let timer = null;
  let last = null;
  let stopped = false;

  async function refresh() {
    clearTimeout(timer);
    try {
      const [labels, status] = await Promise.all([ask("/labels"), ask("/retrain")]);
      if (stopped) return;
      if (last === "running" && status.state === "ready") say("The new model is ready to compare.");
      if (last === "running" && status.state === "failed") say("Retraining failed.");
      last = status.state;
      show(labels, status);
    } catch (error) {
      if (stopped) return;
      tellOnce(error.message);
    }
    // One answer that did not come says nothing about the next.
    clearTimeout(timer);
    if (last === "running") timer = setTimeout(refresh, EVERY);
  }

  function tellOnce(message) {
    place.querySelector("[role=alert]")?.remove();
    place.append(element("p", { class: "problem", role: "alert" }, message));
  }

  async function act(path) {
    // The button goes away; whoever uses the keyboard stays in the panel.
    place.focus();
    for (const button of place.querySelectorAll("button")) button.disabled = true;
    try {
      await tell(path);
    } catch (error) {
      await refresh();
      tellOnce(error.message);
      return;
    }
    if (path === "/retrain/keep") {
      await changed();
      say("The new model is kept");
    } else await refresh();
  }

  function show(labels, status) {
    const waits = labels.waiting.length;
    const told = waits ? `${count(waits, "label waits", "labels wait")} for a retraining.` : "No label waits for a retraining.";
    const start = element("button", { type: "button", disabled: !model.writable || !waits, click: () => act("/retrain") }, "Retrain");
    const parts = {
      idle: () => [element("p", {}, told, " ", start)],
      running: () => [running(status), element("p", { class: "note" }, told)],
      failed: () => [element("p", { class: "problem" }, `Retraining failed: ${status.problem}`), element("p", {}, told, " ", start)],
      ready: () => [compared(model, status.comparison), element("p", { class: "buttons" },
        element("button", { type: "button", class: "primary", click: () => act("/retrain/keep") }, "Keep the new model"),
        element("button", { type: "button", click: () => act("/retrain/discard") }, "Keep the old one"),
        start)],
    };
    place.replaceChildren(element("h2", {}, "Retraining"), ...parts[status.state]());
    place.dataset.state = status.state;
  }

  function stop() {
    stopped = true;
    clearTimeout(timer);
  }

  await refresh();
  return { place, refresh, stop };
}

function running(status) {
  const label = status.of ? `Training models without a part of the labels: ${status.done} of ${status.of}` : "Training the model";
  return element("p", {}, element("label", {}, label, " ",
    element("progress", status.of ? { max: status.of, value: status.done } : {})));
}

function compared(model, found) {
  if (!found) return element("p", {}, "A new model is ready.");
  const share = (side) => side
    ? `${percent(side.accuracy, 1)} (95 % interval ${percent(side.low)} to ${percent(side.high)})` : "—";
  return element("div", {},
    element("p", {}, `Both are judged on the same ${count(found.judged, "label")}, each by models that have not seen the label.`),
    table("Old and new model", ["", "Old", "New"], [
      ["Held-out accuracy", share(found.old), share(found.new)],
      ["Right where the other is wrong", String(found.only_old), String(found.only_new)],
      ["Labels", String(found.labels_before), String(found.labels_now)],
      ["Mean confidence", percent(found.mean_confidence.old, 1), percent(found.mean_confidence.new, 1)],
    ]),
    element("details", {}, element("summary", {}, `${count(found.changed, "prediction")} would change`),
      table("Nodes whose prediction would change", ["Node", "Old", "New"], found.nodes.map((each) => [nodeLink(each.id),
        element("span", {}, className(model, each.old), ` ${percent(each.old_confidence)}`),
        element("span", {}, className(model, each.new), ` ${percent(each.new_confidence)}`)]))));
}
