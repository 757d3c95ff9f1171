// Work lists: labels that look wrong, nodes to label next; below them, retraining.

import { ask, isSnapshot } from "./api.js";
import { className, element, nodeLink, percent, route, section } from "./dom.js";
import { labelControls } from "./labels.js";
import { retrainPanel } from "./retrain.js";

// The title, what it is, and how many are listed at most.
const LISTS = {
  next: ["Label this next", "Labels of these nodes would teach the model most: it is unsure about them and their surroundings.", 50],
  suspicious: ["Labels that look wrong", "Models that were trained without these labels contradict them.", 100],
};

export async function showWork(place, model, values, changed) {
  const chosen = values.list === "suspicious" ? "suspicious" : "next";
  const [title, meaning, most] = LISTS[chosen];
  const rows = await ask(`/work/${chosen}`, { limit: most });
  const panel = isSnapshot ? null : await retrainPanel(model, changed);
  place.append(element("h1", {}, "Label"),
    element("ul", { class: "tabs" }, Object.entries(LISTS).map(([key, [name]]) => element("li", {},
      element("a", { href: route("work", { list: key }), "aria-current": key === chosen ? "page" : null },
        name)))),
    element("p", {}, meaning),
    element("p", { class: "note" }, model.writable
      ? "In a row, the keys 1 to 9 choose a class. Labels are stored at once; the model changes only when you retrain and keep the result."
      : "Labels are not taken here."),
    panel ? panel.place : "",
    section(`${title} (${rows.length < most ? rows.length : `the first ${most}`})`,
      rows.length ? element("ol", { class: "work" }, rows.map((row) => workItem(model, row, chosen, panel)))
        : element("p", {}, chosen === "next" ? "All nodes are labelled." : "None.")),
  );
  return panel ? panel.stop : undefined;
}

function workItem(model, row, chosen, panel) {
  const told = chosen === "next"
    ? ["predicted ", className(model, row.predicted), ` with ${percent(row.confidence)}`]
    : ["labelled ", className(model, row.label), ", held-out prediction ", className(model, row.held_out)];
  return element("li", {}, element("p", {}, nodeLink(row.id), " ", element("span", { class: "told" }, told)),
    model.writable ? labelControls(model, row, () => panel?.refresh()) : null);
}
