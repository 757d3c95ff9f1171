// Elements, numbers and colours. All text enters the page as text nodes, so markup stays text.

const SVG = "http://www.w3.org/2000/svg";

// element("p", {class: "note"}, "text", child): functions listen, other values are attributes.
export function element(tag, attributes = {}, ...children) {
  return furnished(document.createElement(tag), attributes, children);
}

export function drawn(tag, attributes = {}, ...children) {
  return furnished(document.createElementNS(SVG, tag), attributes, children);
}

function furnished(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") node.addEventListener(name, value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

export function section(title, ...children) {
  return element("section", {}, element("h2", {}, title), ...children);
}

export function table(caption, heads, rows) {
  return element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    element("table", {},
      element("caption", { class: "unseen" }, caption),
      element("thead", {}, element("tr", {}, heads.map((head) => element("th", { scope: "col" }, head)))),
      element("tbody", {}, rows.map((cells) => element("tr", {},
        cells.map((cell, at) => at ? element("td", {}, cell) : element("th", { scope: "row" }, cell)))))));
}

export function link(path, values, ...children) {
  return element("a", { href: route(path, values) }, ...children);
}

export function route(path, values = {}) {
  const given = Object.entries(values).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const query = new URLSearchParams(given).toString();
  return `#/${path}${query ? `?${query}` : ""}`;
}

export function nodeLink(id) {
  return link("node", { id }, id);
}

export function swatch(colour) {
  const mark = element("span", { class: "swatch", "aria-hidden": "true" });
  mark.style.backgroundColor = colour;
  return mark;
}

// A class with its colour, or a dash.
export function className(model, name) {
  if (name === null || name === undefined) return element("span", { class: "faint" }, "—");
  const at = model.classes.findIndex((each) => each.name === name);
  return element("span", { class: "class" }, swatch(classColour(at)), element("span", {}, name));
}

export function say(text) {
  const live = document.getElementById("live");
  live.textContent = "";
  // A screen reader speaks of a change.
  setTimeout(() => { live.textContent = text; }, 50);
}

export function percent(share, digits = 0) {
  return share === null || share === undefined ? "—" : `${(100 * share).toFixed(digits)}\u00a0%`;
}

export function count(number, one, many = `${one}s`) {
  return `${number.toLocaleString("en")} ${number === 1 ? one : many}`;
}

export function signed(value) {
  return `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(Math.abs(value) < 0.1 ? 3 : 2)}`;
}

const COLOURS = ["#3b78c4", "#c8572b", "#2f8f5b", "#8a5fc0", "#b8860b", "#c2417f", "#1f8fa3", "#80664a",
  "#6b7f1e", "#7a7f87"];

export function classColour(at) {
  if (at < 0) return "#9aa1a9";
  if (at < COLOURS.length) return COLOURS[at];
  // Turns by the golden angle, so that neighbours in the list differ.
  const hue = (at * 137.508) % 360;
  const part = (shift) => {
    const place = (shift + hue / 30) % 12;
    const value = 0.46 - 0.25 * Math.max(-1, Math.min(place - 3, 9 - place, 1));
    return Math.round(255 * value).toString(16).padStart(2, "0");
  };
  return `#${part(0)}${part(8)}${part(4)}`;
}

const STOPS = [[226, 113, 29], [178, 160, 110], [59, 111, 181]];

// From orange, where a prediction is a guess, to blue.
export function confidenceColour(share) {
  const place = Math.max(0, Math.min(1, share)) * (STOPS.length - 1);
  const at = Math.min(Math.floor(place), STOPS.length - 2);
  const parts = STOPS[at].map((low, k) => Math.round(low + (STOPS[at + 1][k] - low) * (place - at)));
  return `#${parts.map((part) => part.toString(16).padStart(2, "0")).join("")}`;
}
