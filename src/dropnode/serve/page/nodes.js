// Nodes: a search by id, classes and confidence, a page at a time.

import { ask } from "./api.js";
import { className, count, element, link, nodeLink, percent, route, table } from "./dom.js";

const PAGE = 50;
const ORDERS = {
  table: "as in the table",
  "least-confident": "least confident first",
  "most-confident": "most confident first",
};

export async function showNodes(place, model, values) {
  const found = await ask("/nodes", { ...values, limit: PAGE });
  place.append(element("h1", {}, "Nodes"), searchForm(model, values));
  const offset = found.offset;
  place.append(element("p", { role: "status" }, count(found.total, "node matches", "nodes match"),
    found.total > PAGE ? `, ${offset + 1} to ${offset + found.nodes.length} shown` : ""));
  if (found.nodes.length) {
    place.append(table("Nodes that match", ["Node", "Predicted", "Confidence", "Label", "Held-out prediction"],
      found.nodes.map((row) => [nodeLink(row.id), className(model, row.predicted), percent(row.confidence, 1),
        className(model, row.label), className(model, row.held_out)])));
  }
  place.append(element("p", { class: "buttons" },
    offset > 0 ? link("nodes", { ...values, offset: Math.max(0, offset - PAGE) }, "Earlier nodes") : null,
    offset + PAGE < found.total ? link("nodes", { ...values, offset: offset + PAGE }, "Further nodes") : null));
}

function searchForm(model, values) {
  const classes = [["", "any"], ...model.classes.map((each) => [each.name, each.name])];
  const choice = (key, title, options) => element("label", {}, title,
    element("select", { name: key }, options.map(([value, name]) =>
      element("option", { value, selected: (values[key] ?? "") === value }, name))));
  const bound = (key, title, fallback) => element("label", {}, title, element("input", {
    name: key, type: "number", min: 0, max: 100, step: "any", value: Math.round(1000 * (values[key] ?? fallback)) / 10,
  }));
  return element("form", {
    class: "search",
    role: "search",
    submit: (event) => {
      event.preventDefault();
      const chosen = Object.fromEntries(new FormData(event.currentTarget));
      for (const key of ["least", "most"]) chosen[key] = chosen[key] === "" ? "" : Number(chosen[key]) / 100;
      if (chosen.least === 0) chosen.least = "";
      if (chosen.most === 1) chosen.most = "";
      location.hash = route("nodes", chosen);
    },
  },
  element("label", {}, "Part of an id", element("input", { name: "query", type: "search", value: values.query ?? "" })),
  choice("predicted", "Predicted", classes),
  choice("label", "Label", classes),
  choice("held_out", "Held-out prediction", classes),
  bound("least", "Confidence from %", 0),
  bound("most", "to %", 1),
  choice("order", "Order", Object.entries(ORDERS)),
  element("button", { type: "submit" }, "Search"));
}
