// One node: probabilities, set, what pushed it, neighbours, attributes, and its label.

import { askNode, isSnapshot } from "./api.js";
import { influencePicture, shareBars, signedBars } from "./charts.js";
import { classColour, className, count, element, link, nodeLink, percent, section, signed, table } from "./dom.js";
import { labelControls } from "./labels.js";

export async function showNode(place, model, values) {
  const node = await askNode(values.id ?? "", false);
  const why = element("div", {}, element("p", { role: "status" }, "Computing …"));
  place.append(
    element("h1", {}, node.id),
    element("p", { class: "verdict" }, "Predicted ", className(model, node.predicted),
      ` with ${percent(node.confidence, 1)} confidence. Label: `, className(model, node.label), ". ",
      node.held_out && node.label
        ? element("span", {}, "Without this label it would be ", className(model, node.held_out), ". ") : null,
      link("graph", { node: node.id }, "Show in the graph")),
    section("Label it", labelControls(model, node)),
    node.probabilities ? section("Probabilities", probabilityBars(model, node)) : "",
    section("Why", why),
    section(`Neighbours (${node.degree.toLocaleString("en")})`, neighbours(model, node)),
    ...attributes(node),
  );
  if (isSnapshot || node.explanation) return showWhy(why, model, node.explanation);
  // It can take long on a large graph, so the rest is shown first.
  askNode(node.id, true).then(
    (full) => showWhy(why, model, full.explanation),
    (error) => why.replaceChildren(element("p", { class: "problem" }, error.message)),
  );
  return undefined;
}

function probabilityBars(model, node) {
  const rows = model.classes.map((each, at) => ({
    name: each.name,
    share: node.probabilities[each.name],
    colour: classColour(at),
    note: percent(node.probabilities[each.name], 1),
    chosen: node.set?.includes(each.name),
  })).sort((a, b) => b.share - a.share);
  const note = node.set === null || node.set === undefined
    ? "There is no set of classes: no labels were held out."
    : `Set that should hold the true class in nine of ten cases: ${node.set.join(", ") || "none"}.`;
  return element("div", {}, shareBars(rows), element("p", { class: "note" }, note));
}

function showWhy(place, model, explanation) {
  if (!explanation) {
    place.replaceChildren(element("p", {}, "A snapshot explains nodes of its work lists alone, as many as there was time for."));
    return;
  }
  if (explanation.problem) {
    place.replaceChildren(element("p", {}, explanation.problem));
    return;
  }
  const nodes = explanation.nodes.filter((each) => each.amount !== 0);
  place.replaceChildren(
    element("p", {}, "What raised (+) or lowered (−) the score of ", className(model, explanation.class),
      `. All nodes and a constant of ${signed(explanation.bias)} sum to the score ${signed(explanation.score)}.`),
    element("div", { class: "columns" },
      element("figure", {}, influencePicture(explanation, model),
        element("figcaption", {}, "The larger, the stronger; a dashed rim lowers the score. Colours are classes.")),
      element("div", {},
        element("h3", {}, "By node"),
        signedBars([...nodes.map((each) => ({ name: nodeLink(each.id), amount: each.amount })),
          { name: "all others", amount: explanation.other_nodes }]),
        element("h3", {}, "By feature"),
        signedBars([...explanation.columns, { name: "all others", amount: explanation.other_columns }]))),
  );
}

function neighbours(model, node) {
  if (!node.neighbours.length) return element("p", {}, "It has no edges.");
  const more = node.degree - node.neighbours.length;
  return element("div", {}, table("Neighbours", ["Node", "Predicted", "Confidence", "Label"],
    node.neighbours.map((row) => [nodeLink(row.id), className(model, row.predicted), percent(row.confidence, 1),
      className(model, row.label)])),
  more > 0 ? element("p", { class: "note" }, `and ${count(more, "neighbour")} of smaller weight`) : null);
}

function attributes(node) {
  const entries = Object.entries(node.attributes ?? {});
  const parts = [];
  if (entries.length) {
    parts.push(section("Attributes", element("dl", { class: "attributes" },
      entries.flatMap(([name, text]) => [element("dt", {}, name), element("dd", {}, text)]))));
  }
  if (node.features?.length) {
    parts.push(section("Largest features", element("p", {}, node.features
      .map((each) => `${each.name} ${Number(each.value.toPrecision(3))}`).join(", "))));
  }
  return parts;
}
