// Small charts. Each says in words what it shows, and the numbers stand beside it.

import { classColour, drawn, element, percent, route, signed, swatch } from "./dom.js";

// Horizontal bars of shares, as a list.
export function shareBars(rows) {
  return element("ul", { class: "bars" }, rows.map(({ name, share, colour, note, chosen }) => {
    const bar = element("span", { class: "bar", "aria-hidden": "true" }, element("span", {}));
    bar.firstChild.style.width = `${100 * share}%`;
    if (colour) bar.firstChild.style.backgroundColor = colour;
    return element("li", { class: chosen ? "chosen" : null },
      element("span", { class: "name" }, name), bar, element("span", { class: "value" }, note));
  }));
}

// Bars to the left and right of a middle line, as a list.
export function signedBars(rows) {
  const largest = Math.max(...rows.map((row) => Math.abs(row.amount)), 1e-9);
  return element("ul", { class: "bars" }, rows.map(({ name, amount }) => {
    const bar = element("span", { class: "bar signed", "aria-hidden": "true" }, element("span", {}));
    const inside = bar.firstChild;
    inside.style.width = `${(50 * Math.abs(amount)) / largest}%`;
    inside.className = amount < 0 ? "against" : "towards";
    return element("li", {}, element("span", { class: "name" }, name), bar,
      element("span", { class: "value" }, signed(amount)));
  }));
}

export function histogram(counts, open) {
  const [width, height] = [600, 150];
  const largest = Math.max(...counts, 1);
  const step = width / counts.length;
  const total = counts.reduce((sum, each) => sum + each, 0);
  const sure = counts.slice(Math.floor(0.9 * counts.length)).reduce((sum, each) => sum + each, 0);
  const bars = counts.map((each, at) => {
    const [least, most] = [at / counts.length, (at + 1) / counts.length];
    // A bar is without its upper bound, the last one with it; a search is always with it.
    const below = at + 1 < counts.length ? most * (1 - Number.EPSILON / 2) : most;
    const tall = (each / largest) * height;
    const told = `${each} nodes between ${percent(least)} and ${percent(most)}`;
    // The invisible bar is as tall as the chart, so that a short one can be hit as well.
    return drawn("a", { href: open(least, below), "aria-label": told },
      drawn("title", {}, told),
      drawn("rect", { x: at * step, y: 0, width: step, height, class: "catch" }),
      drawn("rect", { x: at * step + 1, y: height - tall, width: step - 2, height: tall, class: "column" }));
  });
  // Beside the picture, because text inside would grow and shrink with it.
  const ticks = element("div", { class: "ticks", "aria-hidden": "true" },
    [0, 0.5, 1].map((share) => element("span", {}, percent(share))));
  const told = `Histogram of confidence: ${percent(sure / Math.max(total, 1))} of nodes are at 90 % or more.`;
  return element("div", {},
    drawn("svg", { viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": told, class: "chart" }, bars), ticks);
}

// How often predictions of a confidence are right. A circle's area is the number of labels.
export function reliabilityChart(found) {
  const size = 220;
  const total = found.count.reduce((sum, each) => sum + each, 0);
  const told = found.count.flatMap((each, at) => each
    ? [`${percent(found.confidence[at] / each)} confident, ${percent(found.correct[at] / each)} right, ${each} labels`] : []);
  const points = found.count.flatMap((each, at) => each ? [drawn("circle", {
    cx: (found.confidence[at] / each) * size,
    cy: size - (found.correct[at] / each) * size,
    r: 3 + 14 * Math.sqrt(each / total),
    class: "point",
  }, drawn("title", {}, `${found.correct[at]} of ${each} right`))] : []);
  return drawn("svg", {
    viewBox: `-44 -18 ${size + 64} ${size + 58}`, role: "img", class: "chart square",
    "aria-label": `Calibration: ${told.join("; ")}.`,
  },
  drawn("rect", { x: 0, y: 0, width: size, height: size, class: "frame" }),
  drawn("line", { x1: 0, y1: size, x2: size, y2: 0, class: "ideal" }),
  points,
  drawn("text", { x: size / 2, y: size + 34, "text-anchor": "middle" }, "confidence"),
  drawn("text", { x: -size / 2, y: -30, "text-anchor": "middle", transform: "rotate(-90)" }, "share right"),
  ["0", "1"].flatMap((tick, at) => [
    drawn("text", { x: at * size, y: size + 16, "text-anchor": "middle" }, tick),
    drawn("text", { x: -8, y: size - at * size + 5, "text-anchor": "end" }, tick)]));
}

// A row per label, a column per held-out prediction; a cell opens its nodes.
export function confusionTable(classes, confusion) {
  const largest = Math.max(...confusion.flat(), 1);
  const head = (name, at, scope) => element("th", { scope }, element("span", { class: "class" }, swatch(classColour(at)), element("span", {}, name)));
  const cell = (value, row, column) => {
    const place = element("td", { class: row === column ? "hit" : "miss" });
    const share = value / largest;
    place.style.setProperty("--share", `${Math.round(55 * Math.sqrt(share))}%`);
    const told = `${value} labelled ${classes[row]}, predicted ${classes[column]}`;
    place.append(value ? element("a", {
      href: route("nodes", { label: classes[row], held_out: classes[column] }),
      "aria-label": told,
    }, String(value)) : "0");
    return place;
  };
  return element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Confusion matrix" },
    element("table", { class: "confusion" },
      element("caption", {}, "Rows: the label. Columns: what a model predicted that was trained without it."),
      element("thead", {}, element("tr", {}, element("td", {}),
        classes.map((name, at) => head(name, at, "col")))),
      element("tbody", {}, confusion.map((values, row) => element("tr", {},
        head(classes[row], row, "row"), values.map((value, column) => cell(value, row, column)))))));
}

// The node in the middle, and around it those that pushed its prediction most.
export function influencePicture(explanation, model) {
  const [size, middle, ring] = [420, 210, 165];
  const rings = Math.max(...explanation.nodes.map((node) => node.ring), 1);
  const largest = Math.max(...explanation.nodes.map((node) => Math.abs(node.amount)), 1e-9);
  const place = (node) => {
    const radius = (node.ring / rings) * ring;
    return [middle + radius * Math.cos(node.angle), middle + radius * Math.sin(node.angle)];
  };
  const byId = new Map(explanation.nodes.map((node) => [node.id, node]));
  const lines = explanation.nodes.flatMap((node) => {
    if (node.parent === null) return [];
    const [[x1, y1], [x2, y2]] = [place(byId.get(node.parent)), place(node)];
    return [drawn("line", { x1, y1, x2, y2, class: node.adjacent ? "edge" : "edge far" })];
  });
  const radiusOf = (node) => 6 + 12 * Math.sqrt(Math.abs(node.amount) / largest);
  const marks = explanation.nodes.map((node) => {
    const [x, y] = place(node);
    const colour = classColour(model.classes.findIndex((each) => each.name === (node.label ?? node.predicted)));
    const told = `${node.id}: ${signed(node.amount)}, ${node.label ? "labelled" : "predicted"} ${node.label ?? node.predicted}`;
    return drawn("a", { href: route("node", { id: node.id }), "aria-label": told },
      drawn("title", {}, told),
      drawn("circle", { cx: x, cy: y, r: radiusOf(node), fill: colour, class: node.amount < 0 ? "mark against" : "mark" }));
  });
  // Shortened, so it is for the eye alone: the links have the whole names.
  const names = explanation.nodes.map((node) => {
    const [x, y] = place(node);
    return drawn("text", { x, y: y + radiusOf(node) + 13, "text-anchor": "middle", "aria-hidden": "true" }, short(node.id));
  });
  return drawn("svg", {
    viewBox: `-20 -14 ${size + 40} ${size + 36}`, role: "group", class: "chart influence",
    "aria-label": "The nodes that pushed this prediction most, around the node",
  }, lines, marks, names);
}

function short(text) {
  return text.length > 14 ? `${text.slice(0, 13)}…` : text;
}
