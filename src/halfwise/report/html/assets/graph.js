// The neighbourhood of one node: drawn, moved, zoomed and walked; never the whole model at once.
"use strict";
const MOST = 90;
const GRAPH = DATA.graph;
const readers = GRAPH.nodes.map(() => []), feeders = GRAPH.nodes.map(() => []);
for (const edge of GRAPH.edges) { readers[edge[0]].push(edge); feeders[edge[1]].push(edge); }
const view = document.getElementById("graph-view");
const hops = document.getElementById("graph-hops");
const picker = document.getElementById("graph-culprit");
let shownAt = DATA.start, frame = { x: 0, y: 0, k: 1 }, extent = null, stage = null;

function neighbourhood(start, reach) {
  const found = new Map([[start, 0]]);
  let reached = [start];
  for (let step = 1; step <= reach && reached.length; step++) {
    const next = [];
    for (const node of reached) for (const edge of [...feeders[node], ...readers[node]]) {
      const other = edge[0] === node ? edge[1] : edge[0];
      if (found.has(other) || found.size >= MOST) continue;
      found.set(other, step);
      next.push(other);
    }
    reached = next;
  }
  return found;
}

const stateOf = (node) => DATA.states[GRAPH.nodes[node][2]];
function lastPart(name, width = 24) {
  if (name.length <= width) return name;
  const parts = name.split("/").filter(Boolean);
  let text = parts.pop() ?? name;
  while (parts.length && text.length + parts[parts.length - 1].length + 1 <= width - 2) text = parts.pop() + "/" + text;
  return brief("…/" + text, width);
}

function drawNode(node, x, y, current) {
  const [letter, key, title] = stateOf(node), op = opOf(node), label = lastPart(nodeName(node));
  const width = nodeWidth(node), half = width / 2;
  const group = draw("g", { class: `node state state-${key}${current ? " current" : ""}`, transform: `translate(${x.toFixed(1)} ${y.toFixed(1)})`, tabindex: "0", role: "button", "data-node": node, "aria-description": `${title}: ${brief(nodeName(node), 120)}` });
  if (current) group.append(draw("rect", { class: "halo", x: -half - 6, y: -29, width: width + 12, height: 58, rx: 8 }));
  group.append(key === "pinned"
    ? draw("path", { class: "shape", d: `M${-half + 10} -23 H${half - 10} L${half} -13 V13 L${half - 10} 23 H${-half + 10} L${-half} 13 V-13 Z` })
    : draw("rect", { class: "shape", x: -half, y: -23, width, height: 46, rx: key === "fp32" || key === "bf16" ? 0 : 10 }));
  group.append(
    draw("text", { class: "letter", x: -half + 9, y: -6 }, letter + " "),
    draw("text", { x: -half + 14 + letter.length * 7, y: -5 }, brief(op, 22) + " "),
    draw("text", { class: "path", x: -half + 9, y: 13 }, label),
  );
  return group;
}
const nodeWidth = (node) => Math.max(118, Math.max(lastPart(nodeName(node)).length * 6.75 + 20, Math.min(opOf(node).length, 22) * 7.2 + 44));

function drawEdge({ edge, chain }) {
  const points = chain.map((item, i) => [item.x, item.y + (i === 0 ? 23 : i === chain.length - 1 ? -27 : 0)]);
  let path = `M${points[0][0].toFixed(1)} ${points[0][1].toFixed(1)}`;
  for (let i = 1; i < points.length; i++) {
    const [x0, y0] = points[i - 1], [x1, y1] = points[i], bend = (y0 + y1) / 2;
    path += `C${x0.toFixed(1)} ${bend.toFixed(1)} ${x1.toFixed(1)} ${bend.toFixed(1)} ${x1.toFixed(1)} ${y1.toFixed(1)}`;
  }
  const [endX, endY] = points[points.length - 1];
  const drawn = [
    draw("path", { class: edge[2] === 3 ? "edge holds" : "edge", d: path }),
    draw("path", { class: "edge-head", d: `M${endX} ${endY + 4} l-4.5 -8 h9 Z` }),
  ];
  if (edge[2] === 1 || edge[2] === 2) {
    const i = Math.floor((points.length - 1) / 2), x = (points[i][0] + points[i + 1][0]) / 2, y = (points[i][1] + points[i + 1][1]) / 2;
    const cast = draw("g", { transform: `translate(${x.toFixed(1)} ${y.toFixed(1)})`, "data-hover": `cast ${edge[2] === 1 ? "to FP16" : "to FP32"}: ${brief(NAMES[edge[3]], 90)}` });
    cast.append(draw("path", { class: "cast", d: "M0 -10 L10 0 L0 10 L-10 0 Z" }), draw("text", { class: "cast-text", y: 4, "text-anchor": "middle" }, edge[2] === 1 ? "↓" : "↑"));
    drawn.push(cast);
  }
  return drawn;
}

function openGraph(node, scroll = false) {
  shownAt = node;
  buildNow(view);
  const near = neighbourhood(node, Number(hops.value));
  const nodes = [...near.keys()].sort((a, b) => a - b);
  const edges = nodes.flatMap((n) => readers[n]).filter((edge) => near.has(edge[1]));
  const { items, chains } = placeInRows(nodes, edges, nodeWidth);
  stage = draw("g");
  const over = draw("g");
  for (const chain of chains) { const [line, head, cast] = drawEdge(chain); stage.append(line, head); if (cast) over.append(cast); }
  stage.append(over);
  for (const n of nodes) stage.append(drawNode(n, items.get(n).x, items.get(n).y, n === node));
  view.replaceChildren(stage);
  const xs = [...items.values()].flatMap((i) => [i.x - i.width / 2, i.x + i.width / 2]), ys = [...items.values()].map((i) => i.y);
  extent = { x0: Math.min(...xs) - 24, x1: Math.max(...xs) + 24, y0: Math.min(...ys) - 44, y1: Math.max(...ys) + 44, x: items.get(node).x, y: items.get(node).y };
  fit();
  const outside = nodes.reduce((sum, n) => sum + [...feeders[n], ...readers[n]].filter((e) => !near.has(e[0]) || !near.has(e[1])).length, 0);
  document.getElementById("graph-status").textContent = `${plural(nodes.length, "node")} of ${GRAPH.nodes.length.toLocaleString("en-US")}` + (outside ? `; ${plural(outside, "edge")} lead on` : "");
  if (picker) picker.value = [...picker.options].some((o) => o.value === String(node)) ? String(node) : "";
  tell(node);
  if (scroll) { settle(document.getElementById("graph")); document.getElementById("graph").scrollIntoView({ behavior: "instant" }); }
}

// The chosen node is in the address: a link leads to it, and Back to the one before.
function choose(node, scroll = false) {
  if (addressed() !== node) location.hash = `node-${node}`; // first: it would end a movement of the page
  openGraph(node, scroll);
}
function addressed() {
  const found = Number(/^#node-(\d+)$/.exec(location.hash)?.[1] ?? NaN);
  return found < GRAPH.nodes.length ? found : null;
}
addEventListener("hashchange", () => { const node = addressed(); if (node !== null && node !== shownAt) openGraph(node); });
addEventListener("load", () => { const node = addressed(); if (node !== null) openGraph(node, true); });

const move = () => stage.setAttribute("transform", `translate(${frame.x.toFixed(2)} ${frame.y.toFixed(2)}) scale(${frame.k.toFixed(4)})`);
function fit() {
  const box = view.getBoundingClientRect(), width = extent.x1 - extent.x0, height = extent.y1 - extent.y0;
  const whole = Math.min(box.width / width, box.height / height, 1.15);
  const k = Math.max(whole, 0.85); // below this no name can be read: rather the centre than all
  const focus = k > whole;
  frame = { k, x: box.width / 2 - k * (focus ? extent.x : (extent.x0 + extent.x1) / 2), y: box.height / 2 - k * (focus ? extent.y : (extent.y0 + extent.y1) / 2) };
  move();
}
// Paper has another size than the screen: there the picture is fitted by the browser itself.
addEventListener("beforeprint", () => {
  if (!extent) return;
  view.setAttribute("viewBox", `${extent.x0} ${extent.y0} ${extent.x1 - extent.x0} ${extent.y1 - extent.y0}`);
  stage.removeAttribute("transform");
});
addEventListener("afterprint", () => { view.removeAttribute("viewBox"); if (stage) move(); });

function zoom(by, x, y) {
  const box = view.getBoundingClientRect();
  x ??= box.width / 2; y ??= box.height / 2;
  const k = Math.min(Math.max(frame.k * by, 0.12), 4), ratio = k / frame.k;
  frame = { k, x: x - (x - frame.x) * ratio, y: y - (y - frame.y) * ratio };
  move();
}

(function controls() {
  const byId = (id) => document.getElementById(id);
  byId("zoom-in").addEventListener("click", () => zoom(1.3));
  byId("zoom-out").addEventListener("click", () => zoom(1 / 1.3));
  byId("zoom-fit").addEventListener("click", fit);
  hops.addEventListener("change", () => openGraph(shownAt));
  picker?.addEventListener("change", () => { if (picker.value) choose(Number(picker.value)); });
  const search = byId("graph-search"), found = byId("graph-found");
  const all = GRAPH.nodes.map((n) => NAMES[n[0]]), lower = all.map((name) => name.toLowerCase());
  const pick = (exact) => {
    const query = search.value.toLowerCase();
    if (!query) return;
    const hits = [];
    for (let i = 0; i < all.length && hits.length < 12; i++) if (lower[i].includes(query)) hits.push(i);
    found.replaceChildren(...hits.map((i) => make("option", { value: brief(all[i], 200) })));
    const same = all.findIndex((name) => brief(name, 200) === search.value);
    if (same >= 0) choose(same); else if (exact && hits.length) choose(hits[0]);
  };
  search.addEventListener("input", () => pick(false));
  search.addEventListener("keydown", (event) => { if (event.key === "Enter") pick(true); });
  document.addEventListener("click", (event) => {
    const button = event.target.closest(".show-node");
    if (button) choose(Number(button.dataset.node), true);
  });

  const pointers = new Map();
  let moved = 0;
  view.addEventListener("pointerdown", (event) => { pointers.set(event.pointerId, event); moved = 0; });
  view.addEventListener("pointermove", (event) => {
    const before = pointers.get(event.pointerId);
    if (!before) return;
    const others = [...pointers.values()].filter((p) => p.pointerId !== event.pointerId);
    if (others.length === 1) {
      const far = (a, b) => Math.hypot(a.clientX - b.clientX, a.clientY - b.clientY), box = view.getBoundingClientRect();
      zoom(far(event, others[0]) / Math.max(far(before, others[0]), 1), (event.clientX + others[0].clientX) / 2 - box.left, (event.clientY + others[0].clientY) / 2 - box.top);
    } else {
      const x = event.clientX - before.clientX, y = event.clientY - before.clientY;
      moved += Math.abs(x) + Math.abs(y);
      if (moved > 4) { view.classList.add("dragging"); if (!view.hasPointerCapture(event.pointerId)) view.setPointerCapture(event.pointerId); }
      frame.x += x; frame.y += y;
      move();
    }
    pointers.set(event.pointerId, event);
  });
  const release = (event) => { pointers.delete(event.pointerId); view.classList.remove("dragging"); };
  view.addEventListener("pointerup", release);
  view.addEventListener("pointercancel", release);
  view.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return; // plain scrolling is the page's
    event.preventDefault();
    const box = view.getBoundingClientRect();
    zoom(Math.exp(-event.deltaY * 0.01), event.clientX - box.left, event.clientY - box.top);
  }, { passive: false });
  view.addEventListener("click", (event) => {
    const node = event.target.closest(".node");
    if (node && moved <= 4) choose(Number(node.dataset.node));
  });
  view.addEventListener("keydown", (event) => {
    const node = event.target.closest(".node"), step = 60;
    if (node && (event.key === "Enter" || event.key === " ")) { event.preventDefault(); choose(Number(node.dataset.node)); view.querySelector(".current")?.focus(); return; }
    const by = { ArrowLeft: [step, 0], ArrowRight: [-step, 0], ArrowUp: [0, step], ArrowDown: [0, -step] }[event.key];
    if (by) { frame.x += by[0]; frame.y += by[1]; move(); }
    else if (event.key === "+" || event.key === "=") zoom(1.2);
    else if (event.key === "-") zoom(1 / 1.2);
    else if (event.key === "0") fit();
    else return;
    event.preventDefault();
  });
  view.addEventListener("pointerover", (event) => {
    const node = event.target.closest(".node");
    if (node) node.dataset.hover ??= `${opOf(node.dataset.node)}: ${stateOf(node.dataset.node)[2]}\n${brief(nodeName(node.dataset.node), 160)}`;
  });
  if (GRAPH.nodes.length) buildWhenNear(view, () => openGraph(shownAt));
})();
