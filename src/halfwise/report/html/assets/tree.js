// The whole model as a tree of scopes, each level built when it is opened.
"use strict";
const CHUNK = 100, DEEPEST = 12;

function grow(nodes, depth) {
  const scopes = new Map(), leaves = [];
  for (const node of nodes) {
    const parts = nodeName(node).split("/").filter(Boolean);
    if (parts.length - 1 > depth && depth < DEEPEST) {
      const key = parts[depth];
      if (!scopes.has(key)) scopes.set(key, []);
      scopes.get(key).push(node);
    } else leaves.push(node);
  }
  const made = [];
  const groups = [...scopes];
  if (groups.length > 2 * CHUNK) {
    for (let i = 0; i < groups.length; i += CHUNK) {
      const part = groups.slice(i, i + CHUNK);
      made.push(branch(`${brief(part[0][0], 30)} … ${brief(part[part.length - 1][0], 30)}`, part.flatMap((g) => g[1]), () => part.map(([key, inner]) => branch(brief(key, 60), inner, () => grow(inner, depth + 1)))));
    }
  } else for (const [key, inner] of groups) made.push(branch(brief(key, 60), inner, () => grow(inner, depth + 1)));
  for (let i = 0; i < leaves.length; i += CHUNK) {
    const part = leaves.slice(i, i + CHUNK), list = () => make("ul", {}, ...part.map(leaf));
    made.push(leaves.length <= CHUNK ? list() : branch(`nodes ${i + 1} to ${i + part.length}`, part, () => [list()]));
  }
  return made;
}

function branch(title, nodes, build) {
  const counts = DATA.states.map(() => 0);
  for (const node of nodes) counts[GRAPH.nodes[node][2]]++;
  const words = make("span", { class: "counts" });
  counts.forEach((count, i) => {
    if (!count) return;
    if (words.childNodes.length) words.append(" · ");
    const text = `${count.toLocaleString("en-US")} ${DATA.states[i][2]}`;
    words.append(DATA.states[i][1] === "fp32" || DATA.states[i][1] === "bf16" ? make("b", {}, text) : text);
  });
  const details = make("details", {}, make("summary", {}, make("code", {}, title), words));
  details.addEventListener("toggle", () => { if (details.open && details.childNodes.length === 1) details.append(...build()); });
  return details;
}

function leaf(node) {
  const [letter, key] = stateOf(node), name = nodeName(node), parts = name.split("/").filter(Boolean);
  return make("li", {}, make("button", { type: "button", title: brief(name, 300), onclick: () => choose(node, true) },
    make("span", { class: `badge badge-${key}` }, letter), make("span", {}, `${opOf(node)} `), make("code", { class: "quiet" }, brief(parts[parts.length - 1] ?? name, 60))));
}

const scopes = document.getElementById("scopes");
scopes.addEventListener("toggle", () => {
  const tree = document.getElementById("tree");
  if (scopes.open && !tree.childNodes.length) tree.append(...grow(GRAPH.nodes.map((_, i) => i), 0));
});
