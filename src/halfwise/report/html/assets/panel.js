// What is known of the chosen node: formats, shapes, attributes, its weights and results in FP16's bins, its neighbours.
"use strict";
function tell(node) {
  const [, , title] = stateOf(node), cast = ["", " (cast to FP16)", " (cast to FP32)", ""];
  const link = (edge, other) => make("li", {}, make("button", { type: "button", class: "more", onclick: () => choose(other) }, `${opOf(other)}`), " ", nameOf(GRAPH.nodes[other][0], 60), cast[edge[2]]);
  const list = (edges, end, word) => edges.length ? [make("p", {}, `${word}:`), make("ul", {}, ...edges.slice(0, 12).map((e) => link(e, e[end])), edges.length > 12 ? make("li", {}, `and ${edges.length - 12} more`) : null)] : [];
  document.getElementById("graph-detail").replaceChildren(
    make("h3", {}, nameOf(GRAPH.nodes[node][0], 96)),
    make("p", { class: "tags" }, make("span", { class: "tag" }, opOf(node)), make("span", { class: `tag tag-${stateOf(node)[1]}` }, title)),
    ...facts(node), ...(GRAPH.weights[node] ?? []).map((at) => binsOf(at, "weights", "weight")),
    ...(GRAPH.results[node] ?? []).slice(0, 4).map((at) => binsOf(at, "results", "value")),
    ...list(feeders[node], 0, "reads from"), ...list(readers[node], 1, "read by"),
  );
}

// What else the page knows of a node: its share of the error, its results' ranges, why it is out of FP16.
function facts(node) {
  const part = DATA.shares.find((r) => r[6] === node && r[1] === GRAPH.nodes[node][0]), reason = DATA.nodes.find((r) => r[0] === GRAPH.nodes[node][0]);
  const made = DATA.tensors.filter((r) => r[T.node] === node).slice(0, 4);
  const told = [
    ...(part ? [["share of the error", percent(numeric(part[3])) + (part[5] ? ", and it breaks in FP16" : "")]] : []),
    ...made.map((r) => ["makes values of", `${number(r[T.least])} … ${number(r[T.most])} in magnitude`]),
    ...(GRAPH.nodes[node][4] >= 0 ? [["gives", NAMES[GRAPH.nodes[node][4]]]] : []),
    ...(GRAPH.nodes[node][3] >= 0 ? [["attributes", brief(NAMES[GRAPH.nodes[node][3]], 400)]] : []),
    ...(reason && NAMES[reason[4]] ? [["why", NAMES[reason[4]]]] : []),
  ];
  return told.length ? [make("dl", { class: "node-facts" }, ...told.flatMap(([word, text]) => [make("dt", {}, word), make("dd", {}, text)]))] : [];
}

// The same axis as everywhere: a bar for each power of two, its height the logarithm of the count.
function histogram([first, code], label, height = 64) {
  const picture = draw("svg", { class: "bins", width: "100%", height: height + 16, role: "img", "aria-label": label });
  picture.append(...zoneRects(height));
  const heights = [...code].map((letter) => parseInt(letter, 36)), most = Math.max(...heights, 1), width = 1 / (HIGH - LOW);
  const zoneAt = (e) => (e < -24 ? "lost" : e < -14 ? "sub" : e < 16 ? "normal" : "over");
  heights.forEach((size, i) => {
    if (size) picture.append(draw("rect", { class: `column-${zoneAt(first + i)}`, x: pc((first + i - LOW) * width + 0.002), width: pc(width - 0.004), y: (1 - size / most) * height, height: (size / most) * height }));
  });
  for (const [x, text] of DATA.ticks) picture.append(draw("text", { class: "tick", x: pc(x), y: height + 13, "text-anchor": "middle" }, text.replace("-", "−")));
  return picture;
}

function binsOf(at, title, word) {
  const [name, shape, count, first, code] = GRAPH.bins[at];
  return make("div", { class: "bins-box" }, make("p", {}, `${title} ${NAMES[shape]}:`), nameOf(name, 60),
    code ? histogram([first, code], `${plural(count, word)} by power of two`) : null);
}
