// Graph: the whole of it, or the neighbourhood of a node, drawn with WebGL.

import { ask, isSnapshot } from "./api.js";
import { classColour, className, confidenceColour, count, element, link, nodeLink,
  percent, route, say, swatch } from "./dom.js";

const COLOURINGS = { predicted: "predicted class", confidence: "confidence", label: "label", error: "error" };
const FAINT = "#a3abb3";
const [RIGHT, WRONG, UNJUDGED] = ["#2f8f5b", "#c8321f", "#8a5fc0"];

export async function showGraph(place, model, values) {
  place.append(element("h1", {}, "Graph"));
  const wanted = values.node ?? values.around ?? "";
  place.append(searchBar(model, wanted));
  if (!model.drawn_whole && !wanted) {
    place.append(element("p", {}, `The graph has ${count(model.nodes, "node")}, too many to draw at once. `
      + "Name a node, and its neighbourhood is drawn."));
    return undefined;
  }
  const around = model.drawn_whole ? null : wanted;
  const [data, labels] = await Promise.all([ask("/graph", around ? { around } : {}), ask("/labels")]);
  for (const each of labels.waiting) {
    const at = data.ids.indexOf(each.id);
    if (at >= 0) data.label[at] = data.classes.indexOf(each.label);
  }
  const picture = new Picture(model, data);
  const legend = element("ul", { class: "legend", "aria-label": "Colours" });
  const recolour = (how) => {
    picture.colour(how);
    legend.replaceChildren(...legendOf(data, how));
  };
  const choice = element("label", {}, "Colour by ", element("select", { change: (event) => recolour(event.target.value) },
    Object.entries(COLOURINGS).map(([value, name]) => element("option", { value }, name))));
  place.append(element("div", { class: "above" }, choice, zoomButtons(picture)),
    legend, picture.place, picture.beside);
  place.append(element("p", { class: "note", id: "graph-keys" },
    "Keys in the picture: arrows move, + and − zoom, 0 shows all, n and p go through the nodes in view, Enter opens the chosen one."),
  data.edges_left_out ? element("p", { class: "note" },
    `${count(data.edges_left_out, "edge")} of the smallest weights are not drawn.`) : "");
  recolour("predicted");
  picture.start(wanted);
  return () => picture.end();
}

function searchBar(model, wanted) {
  const input = element("input", { name: "id", type: "search", value: wanted, list: "found-ids", autocomplete: "off" });
  const offers = element("datalist", { id: "found-ids" });
  const told = element("p", { class: "problem", role: "alert" });
  let latest = 0;
  input.addEventListener("input", async () => {
    // As long as a field has a message, the browser does not submit it.
    input.setCustomValidity("");
    const mine = ++latest;
    const found = await ask("/nodes", { query: input.value, limit: 10 }).catch(() => null);
    if (found && mine === latest) offers.replaceChildren(...found.nodes.map((row) => element("option", { value: row.id })));
  });
  return element("form", {
    class: "search", role: "search",
    submit: async (event) => {
      event.preventDefault();
      told.textContent = "";
      if (!input.value) return;
      try {
        const found = await ask("/nodes", { query: input.value, limit: 1 });
        if (found.nodes.length) location.hash = route("graph", { node: found.nodes[0].id });
        else say("No node matches");
        input.setCustomValidity(found.nodes.length ? "" : "No node matches");
        input.reportValidity();
      } catch (error) {
        told.textContent = error.message;
      }
    },
  }, element("label", {}, "Find a node", input, offers), element("button", { type: "submit" }, "Show"), told);
}

function zoomButtons(picture) {
  const button = (name, sign, act) => element("button", { type: "button", "aria-label": name, click: act }, sign);
  return element("span", { class: "buttons" },
    button("Zoom in", "+", () => picture.zoom(1 / 1.5)),
    button("Zoom out", "−", () => picture.zoom(1.5)),
    button("Show all", "⤢", () => picture.all()));
}

function legendOf(data, how) {
  const entry = (colour, text) => element("li", {}, swatch(colour), text);
  if (how === "predicted") return data.classes.map((name, at) => entry(classColour(at), name));
  if (how === "label") return [...data.classes.map((name, at) => entry(classColour(at), name)), entry(FAINT, "no label")];
  if (how === "confidence") return [0, 0.5, 1].map((share) => entry(confidenceColour(share), percent(share)));
  return [entry(WRONG, "label contradicts the held-out prediction (drawn larger)"), entry(RIGHT, "label confirmed"),
    entry(UNJUDGED, "label not judged"), entry(FAINT, "no label")];
}

// Sigma's canvas with our colours, selection and keys.
class Picture {
  constructor(model, data) {
    this.model = model;
    this.data = data;
    this.place = element("div", {
      class: "picture", tabindex: "0", role: "application", "aria-describedby": "graph-keys",
      "aria-label": `Picture of ${count(data.ids.length, "node")} and ${count(data.edges.length / 2, "edge")}`,
      keydown: (event) => this.key(event),
    });
    this.beside = element("div", { class: "panel beside", "aria-live": "polite" }, element("p", {}, "Choose a node to read about it."));
    this.selected = null;
    this.near = new Set();
    this.graph = this.made();
  }

  made() {
    const { data } = this;
    const graph = new graphology.Graph({ type: "undirected" });
    const degree = new Uint32Array(data.ids.length);
    for (const end of data.edges) degree[end] += 1;
    const scale = data.ids.length > 5000 ? 0.5 : data.ids.length > 1000 ? 0.7 : 1;
    this.sizes = Array.from(degree, (each) => scale * (2.5 + Math.min(8, 1.2 * Math.sqrt(each))));
    data.ids.forEach((id, at) => graph.addNode(String(at), { x: data.x[at], y: data.y[at], size: this.sizes[at], label: id, color: FAINT }));
    for (let k = 0; k < data.edges.length; k += 2) {
      graph.addEdge(String(data.edges[k]), String(data.edges[k + 1]));
    }
    return graph;
  }

  colour(how) {
    const { data } = this;
    this.graph.updateEachNodeAttributes((key, attributes) => {
      const at = Number(key);
      const [label, held] = [data.label[at], data.held_out[at]];
      let [colour, larger] = [FAINT, 1];
      if (how === "predicted") colour = classColour(data.predicted[at]);
      else if (how === "confidence") colour = confidenceColour(data.confidence[at]);
      else if (label >= 0) {
        larger = 1.5;
        if (how === "label") colour = classColour(label);
        else if (held < 0) colour = UNJUDGED;
        else if (held === label) colour = RIGHT;
        else [colour, larger] = [WRONG, 2.2];
      }
      return { ...attributes, color: colour, size: this.sizes[at] * larger };
    }, { attributes: ["color", "size"] });
  }

  start(wanted) {
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    const ink = dark ? "#e8ecf0" : "#1b2026";
    const large = this.data.ids.length > 2000;
    this.dim = dark ? "#39424c" : "#dde2e6";
    const edge = dark ? (large ? "#30373f" : "#4a535d") : (large ? "#e1e5e9" : "#c9d0d6");
    try {
      this.sigma = new Sigma(this.graph, this.place, {
        labelColor: { color: ink }, labelFont: "system-ui, sans-serif", labelSize: 13, defaultEdgeColor: edge,
        labelRenderedSizeThreshold: large ? 12 : 7, hideEdgesOnMove: large, hideLabelsOnMove: large, zIndex: false,
        minCameraRatio: 0.005, maxCameraRatio: 4,
        defaultDrawNodeHover: (context, node, settings) => drawHover(context, node, settings, dark),
        nodeReducer: (key, attributes) => this.shownNode(key, attributes),
        edgeReducer: (key, attributes) => this.shownEdge(key, attributes),
      });
    } catch (error) {
      this.place.replaceChildren(element("p", { class: "problem" },
        `This browser cannot draw the graph (${error.message}). The view Nodes lists its nodes.`));
      return;
    }
    this.rest();
    this.sigma.on("clickNode", ({ node }) => this.select(node));
    this.sigma.on("doubleClickNode", ({ node, preventSigmaDefault }) => {
      preventSigmaDefault();
      location.hash = route("node", { id: this.data.ids[Number(node)] });
    });
    this.sigma.on("clickStage", () => this.select(null));
    requestAnimationFrame(() => {
      this.place.dataset.drawn = "yes";
      performance.mark("graph-drawn");
    });
    const at = this.data.ids.indexOf(wanted);
    if (at >= 0) {
      this.select(String(at));
      if (this.data.whole) this.approach(String(at));
    }
  }

  // Edges of a large graph take a second to draw without a GPU. Sigma hides them while the camera is animated; here it
  // counts as animated until a moment after the last move, whatever moved it.
  rest() {
    const camera = this.sigma.getCamera();
    const animated = camera.isAnimated.bind(camera);
    let moving = null;
    camera.isAnimated = () => moving !== null || animated();
    camera.on("updated", () => {
      clearTimeout(moving);
      moving = setTimeout(() => {
        moving = null;
        this.sigma?.scheduleRender();
      }, 400);
    });
  }

  end() {
    this.sigma?.kill();
    this.sigma = null;
  }

  shownNode(key, attributes) {
    if (this.selected === null) return attributes;
    if (key === this.selected) return { ...attributes, highlighted: true, size: attributes.size * 1.4 };
    if (this.near.has(key)) return { ...attributes, forceLabel: this.near.size < 30 };
    return { ...attributes, color: this.dim, label: null };
  }

  shownEdge(key, attributes) {
    if (this.selected === null) return attributes;
    const ends = this.graph.extremities(key);
    return ends.includes(this.selected) ? { ...attributes, color: "#7d8791", size: 2 } : { ...attributes, hidden: true };
  }

  select(key) {
    this.selected = key;
    this.near = new Set(key === null ? [] : this.graph.neighbors(key));
    this.sigma?.refresh({ skipIndexation: true });
    if (key === null) {
      this.beside.replaceChildren(element("p", {}, "Choose a node to read about it."));
      return;
    }
    const { data, model } = this;
    const at = Number(key);
    const name = (code) => className(model, code < 0 ? null : data.classes[code]);
    this.beside.replaceChildren(
      element("p", {}, element("strong", {}, nodeLink(data.ids[at])), " — predicted ", name(data.predicted[at]),
        ` with ${percent(data.confidence[at])}, label `, name(data.label[at]), `, ${count(this.near.size, "neighbour")} here. `,
        data.whole || isSnapshot ? null : link("graph", { node: data.ids[at] }, "Draw around it")));
  }

  zoom(factor) {
    const camera = this.sigma?.getCamera();
    camera?.animate({ ratio: camera.getBoundedRatio(camera.ratio * factor) }, { duration: 150 });
  }

  all() {
    this.sigma?.getCamera().animatedReset({ duration: 150 });
  }

  // As near as its neighbours permit, which stay in view.
  approach(key) {
    const shown = this.sigma.getNodeDisplayData(key);
    if (!shown) return;
    const reach = Math.max(0, ...this.graph.mapNeighbors(key, (other) => {
      const { x, y } = this.sigma.getNodeDisplayData(other);
      return Math.hypot(x - shown.x, y - shown.y);
    }));
    this.sigma.getCamera().setState({ x: shown.x, y: shown.y, ratio: Math.min(1, Math.max(0.05, 4 * reach)) });
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || !this.sigma) return;
    const camera = this.sigma.getCamera();
    const step = 0.1 * camera.ratio;
    const moves = { ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, step], ArrowDown: [0, -step] };
    if (moves[event.key]) {
      camera.setState({ x: camera.x + moves[event.key][0], y: camera.y + moves[event.key][1] });
    } else if (event.key === "+" || event.key === "=") this.zoom(1 / 1.5);
    else if (event.key === "-") this.zoom(1.5);
    else if (event.key === "0") this.all();
    else if (event.key === "Escape") this.select(null);
    else if (event.key === "n" || event.key === "p") this.go(event.key === "n" ? 1 : -1);
    else if (event.key === "Enter" && this.selected !== null) location.hash = route("node", { id: this.data.ids[Number(this.selected)] });
    else return;
    event.preventDefault();
  }

  // The next node in view, in the order of the table.
  go(step) {
    const { width, height } = this.sigma.getDimensions();
    const total = this.data.ids.length;
    let at = this.selected === null ? (step > 0 ? -1 : total) : Number(this.selected);
    for (let tried = 0; tried < total; tried += 1) {
      at = (at + step + total) % total;
      const { x, y } = this.sigma.graphToViewport({ x: this.data.x[at], y: this.data.y[at] });
      if (x >= 0 && x <= width && y >= 0 && y <= height) {
        this.select(String(at));
        return;
      }
    }
  }
}

function drawHover(context, node, settings, dark) {
  context.font = `${settings.labelWeight} ${settings.labelSize}px ${settings.labelFont}`;
  context.beginPath();
  context.arc(node.x, node.y, node.size + 3, 0, 2 * Math.PI);
  context.lineWidth = 2;
  context.strokeStyle = settings.labelColor.color;
  context.stroke();
  if (!node.label) return;
  const width = context.measureText(node.label).width;
  // Above the node if there is no room on the right.
  const beside = node.x + node.size + 6;
  const most = context.canvas.clientWidth - width - 12;
  const left = beside <= most ? beside : Math.max(2, most);
  const top = beside <= most ? node.y - settings.labelSize / 2 - 5 : node.y - node.size - settings.labelSize - 18;
  context.fillStyle = dark ? "#262d35" : "#ffffff";
  context.fillRect(left, top, width + 10, settings.labelSize + 10);
  context.strokeRect(left, top, width + 10, settings.labelSize + 10);
  context.fillStyle = settings.labelColor.color;
  context.fillText(node.label, left + 5, top + 5 + (5 * settings.labelSize) / 6);
}
