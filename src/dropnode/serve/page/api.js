// Questions to the service. A snapshot has the answers inside and no service.

const embedded = document.getElementById("snapshot");
const answers = embedded ? JSON.parse(embedded.textContent) : null;

export const isSnapshot = answers !== null;

export class Refused extends Error {
  constructor(status, problems) {
    super(problems.map((each) => each.message).join("; "));
    this.status = status;
  }
}

export async function ask(path, values = {}) {
  const given = Object.entries(values).filter(([, value]) => value !== null && value !== undefined && value !== "");
  if (isSnapshot) return answered(path, Object.fromEntries(given));
  const query = new URLSearchParams(given).toString();
  return (await sent(query ? `${path}?${query}` : path, {})).json();
}

export async function tell(path, body = {}) {
  const options = { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
  return (await sent(path, options)).json();
}

export function askNode(id, explain) {
  // A browser removes "." and ".." from a path, unless something stands before them.
  const name = id === "." || id === ".." ? `%2F${id}` : encodeURIComponent(id);
  return isSnapshot ? ask(`/nodes/${id}`) : ask(`/nodes/${name}`, { explain });
}

// Fetched rather than linked to, because a link cannot show a token.
export async function download(path, name) {
  const content = await (await sent(path, {})).blob();
  const address = URL.createObjectURL(content);
  const anchor = document.createElement("a");
  anchor.href = address;
  anchor.download = name;
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}

const TOKEN = "dropnode-token";

// Returns whether it can be one: any other character could not be sent, or not stand in an address.
export function keepToken(token) {
  const sound = /^[A-Za-z0-9._~+/=-]+$/.test(token);
  if (sound) sessionStorage.setItem(TOKEN, token);
  return sound;
}

export function hasToken() {
  return sessionStorage.getItem(TOKEN) !== null;
}

async function sent(path, options) {
  const token = sessionStorage.getItem(TOKEN);
  const headers = { ...options.headers, ...(token ? { authorization: `Bearer ${token}` } : {}) };
  let response;
  try {
    response = await fetch(path, { ...options, headers });
  } catch {
    throw new Refused(0, [{ message: "the service does not answer; is it still running?" }]);
  }
  if (response.ok) return response;
  let problems;
  try {
    ({ problems } = await response.json());
  } catch {
    problems = [{ message: `the service answered with status ${response.status}` }];
  }
  throw new Refused(response.status, problems);
}

function answered(path, values) {
  if (Object.hasOwn(answers, path) && path !== "/nodes") return answers[path];
  const graph = answers["/graph"];
  if (path === "/labels") return { writable: false, entries: 0, waiting: [] };
  if (graph && path === "/nodes") return found(graph, values);
  if (graph && path.startsWith("/nodes/")) {
    const at = graph.ids.indexOf(path.slice("/nodes/".length));
    if (at >= 0) return sketched(graph, at);
  }
  throw new Refused(404, [{ message: "this snapshot does not have it; serve the model to see it" }]);
}

function rowOf(graph, at) {
  const name = (code) => (code < 0 ? null : graph.classes[code]);
  return {
    id: graph.ids[at],
    predicted: name(graph.predicted[at]),
    confidence: graph.confidence[at],
    label: name(graph.label[at]),
    held_out: name(graph.held_out[at]),
  };
}

function found(graph, values) {
  const wanted = (values.query ?? "").toLowerCase();
  const bounds = [Number(values.least ?? 0), Number(values.most ?? 1)];
  const classes = ["predicted", "label", "held_out"].filter((key) => values[key]);
  let nodes = graph.ids.map((_, at) => rowOf(graph, at)).filter((row) =>
    row.id.toLowerCase().includes(wanted)
    && row.confidence >= bounds[0] && row.confidence <= bounds[1]
    && classes.every((key) => row[key] === values[key]));
  if (values.order === "least-confident") nodes = nodes.sort((a, b) => a.confidence - b.confidence);
  if (values.order === "most-confident") nodes = nodes.sort((a, b) => b.confidence - a.confidence);
  const exact = nodes.findIndex((row) => row.id === values.query);
  if (exact > 0) nodes.unshift(...nodes.splice(exact, 1));
  const offset = Number(values.offset ?? 0);
  return { total: nodes.length, offset, nodes: nodes.slice(offset, offset + Number(values.limit ?? 50)) };
}

// Of a node that is in no work list, a snapshot has what the picture shows.
function sketched(graph, at) {
  const neighbours = [];
  for (let k = 0; k < graph.edges.length; k += 2) {
    const [source, target] = [graph.edges[k], graph.edges[k + 1]];
    if (source === at || target === at) neighbours.push(rowOf(graph, source === at ? target : source));
  }
  return { ...rowOf(graph, at), degree: graph.degree[at], neighbours, attributes: {} };
}
