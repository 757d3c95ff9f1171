// The page: which view is shown, and what is said if it cannot be.

import { ask, hasToken, isSnapshot, keepToken } from "./api.js";
import { element } from "./dom.js";
import { showGraph } from "./graph.js";
import { showNode } from "./node.js";
import { showNodes } from "./nodes.js";
import { showOverview } from "./overview.js";
import { showWork } from "./work.js";

const VIEWS = { overview: showOverview, graph: showGraph, nodes: showNodes, node: showNode, work: showWork };
const TITLES = { overview: "Overview", graph: "Graph", nodes: "Nodes", node: "Node", work: "Label" };

const view = document.getElementById("view");
let model = null;
let end = () => {};
let turn = 0;

async function show() {
  const mine = ++turn;
  const [path, query] = location.hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  const name = Object.hasOwn(VIEWS, path) ? path : "overview";
  const values = Object.fromEntries(new URLSearchParams(query ?? ""));
  end();
  end = () => {};
  delete view.dataset.view;
  const place = element("div", {});
  view.replaceChildren(place);
  // On a slow answer, a word; on a quick one, no flicker.
  const patience = setTimeout(() => place.append(element("p", { role: "status" }, "Loading …")), 300);
  try {
    model ??= await ask("/model");
    if (mine !== turn) return;
    document.getElementById("model-name").textContent = `${isSnapshot ? "snapshot of " : ""}${model.name ?? "model"}`;
    const fresh = element("div", { class: `view-${name}` });
    place.after(fresh);
    const stop = await VIEWS[name](fresh, model, values, changed);
    if (mine !== turn) {
      stop?.();
      return;
    }
    end = stop ?? end;
  } catch (error) {
    if (mine !== turn) return;
    if (error.status === 401) askForToken();
    else view.replaceChildren(element("p", { class: "problem", role: "alert" }, error.message));
    if (error.status === undefined) throw error;
  } finally {
    clearTimeout(patience);
    place.remove();
  }
  document.title = `${TITLES[name]}${name === "node" ? ` ${values.id}` : ""} · dropnode Explorer`;
  for (const anchor of document.querySelectorAll("nav a")) {
    if (anchor.getAttribute("href") === `#/${name === "node" ? "nodes" : name}`) anchor.setAttribute("aria-current", "page");
    else anchor.removeAttribute("aria-current");
  }
  view.dataset.view = name;
}

// A kept candidate: everything is read again.
async function changed() {
  model = null;
  await renew();
}

// What had the focus is gone; whoever uses the keyboard goes on in the view.
async function renew() {
  await show();
  // What asks for a token has taken the focus already.
  if (!view.contains(document.activeElement)) view.focus({ preventScroll: true });
}

function askForToken() {
  const input = element("input", { name: "token", type: "password", autocomplete: "off", required: true });
  const told = element("p", { class: "problem", role: "alert" }, hasToken() ? "The service does not take this token." : "");
  view.replaceChildren(element("form", {
    class: "search",
    submit: (event) => {
      event.preventDefault();
      if (keepToken(input.value.trim())) renew();
      else told.textContent = "A token has letters, digits and . _ ~ + / = - alone.";
    },
  }, element("h1", {}, "A token is needed"), element("label", {}, "Token", input),
  element("button", { type: "submit" }, "Continue"), told));
  input.focus();
}

function takeToken() {
  const given = /^#token=(.+)$/.exec(location.hash);
  if (!given) return;
  keepToken(given[1]);
  // Not left in the address, which people copy.
  history.replaceState(null, "", location.pathname);
}

document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  view.focus();
});
window.addEventListener("hashchange", async () => {
  takeToken();
  await renew();
  window.scrollTo(0, 0);
});
takeToken();
show();
