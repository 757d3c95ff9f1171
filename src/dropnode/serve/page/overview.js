// Overview: what the model is, how far to believe it, and files to take away.

import { download, isSnapshot } from "./api.js";
import { confusionTable, histogram, reliabilityChart, shareBars } from "./charts.js";
import { classColour, count, element, link, percent, route, say, section, table } from "./dom.js";

export function showOverview(place, model) {
  const { metrics } = model;
  place.append(
    element("h1", {}, "Overview"),
    element("dl", { class: "facts" },
      fact("Nodes", model.nodes.toLocaleString("en")),
      fact("Edges", model.edges.toLocaleString("en")),
      fact("Features", model.features.toLocaleString("en")),
      fact("Labels", model.labels.toLocaleString("en")),
      metrics && fact("Held-out accuracy", percent(metrics.accuracy), spread(metrics))),
    section("Classes", classBars(model)),
    section("Confidence of predictions",
      histogram(model.confidence, (least, most) => route("nodes", { least, most, order: "least-confident" })),
      element("p", { class: "note" }, "Each bar opens its nodes. ",
        link("nodes", { order: "least-confident" }, "The least confident nodes"))),
    ...(metrics ? assessed(model) : [section("How far to believe it",
      element("p", {}, "No labels were held out, so nobody knows how good these predictions are. ",
        "Fit the model with two or more labels in at least two classes, and with --assess."))]),
    section("Files to take away", downloads()),
    section("Where it comes from", origin(model)),
  );
}

function fact(name, value, more = null) {
  return element("div", {}, element("dt", {}, name), element("dd", {}, value,
    more && element("small", {}, more)));
}

function spread(metrics) {
  const [low, high] = metrics.accuracy_interval;
  return `95 % interval ${percent(low)} to ${percent(high)}, ${count(metrics.labels, "label")}`;
}

function classBars(model) {
  const largest = Math.max(...model.classes.map((each) => each.predicted), 1);
  return shareBars(model.classes.map((each, at) => ({
    name: link("nodes", { predicted: each.name }, each.name),
    share: each.predicted / largest,
    colour: classColour(at),
    note: `${each.predicted.toLocaleString("en")} predicted, ${count(each.labels, "label")}`,
  })));
}

function assessed(model) {
  const { metrics } = model;
  const after = metrics.after_calibration ?? metrics.before_calibration;
  const sets = metrics.sets
    ? `Sets of classes hold the true one in ${percent(metrics.sets.coverage)} of cases (wanted: `
      + `${percent(metrics.sets.wanted)}) and have ${metrics.sets.mean_size.toFixed(1)} classes on average.`
    : null;
  return [
    section("Labels against held-out predictions",
      confusionTable(metrics.classes, metrics.confusion),
      element("p", { class: "note" }, "A number opens its nodes. ",
        link("work", { list: "suspicious" }, "Labels that look wrong"))),
    section("Calibration",
      metrics.reliability ? reliabilityChart(metrics.reliability) : null,
      element("p", {}, `Confidence is off by ${percent(after.ece, 1)} on average (ECE); `
        + `with so few labels, chance alone gives ${percent(after.ece_by_chance, 1)}. `, sets)),
  ];
}

function downloads() {
  if (isSnapshot) return element("p", {}, "This page is a snapshot; it has no service behind it.");
  const files = [
    ["/export/predictions.csv", "predictions.csv", "Predictions as CSV"],
    ["/export/graph.gexf", "graph.gexf", "Graph for Gephi (GEXF)"],
    ["/export/snapshot.html", "snapshot.html", "This page as one file"],
  ];
  return element("p", { class: "buttons" }, files.map(([path, name, title]) => element("button", {
    type: "button",
    click: async (event) => {
      const button = event.currentTarget;
      button.disabled = true;
      say(`Preparing ${name}`);
      try {
        await download(path, name);
        say(`${name} is downloaded`);
      } catch (error) {
        button.after(element("span", { class: "problem", role: "alert" }, error.message));
      }
      button.disabled = false;
      // It lost the focus when it was disabled; a person may have gone elsewhere since.
      if (document.activeElement === document.body) button.focus();
    },
  }, title)));
}

function origin(model) {
  const rows = [
    ["Data", model.name ?? "—"],
    ["Method", `${model.method}, preset ${model.preset}, seed ${model.seed}`],
    ["Saved", new Date(model.saved).toLocaleString()],
    ["Columns", model.columns.join(", ") || "—"],
    ...Object.entries(model.versions).map(([name, version]) => [name, version]),
  ];
  return table("Where the model comes from", ["", ""], rows);
}
