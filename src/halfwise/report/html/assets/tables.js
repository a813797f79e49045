// Which tables there are, and what their columns say.
"use strict";
const ZONES = ["normal", "sub", "lost", "over", "nonfinite"];
const ZONE_WORDS = { normal: "✓ normal", sub: "S subnormal", lost: "L lost", over: "O overflow", nonfinite: "! not finite" };
const LOW = -36, HIGH = 24;
const numeric = (value) => (typeof value === "number" ? value : value === "inf" ? Infinity : value === "-inf" ? -Infinity : NaN);
const place = (magnitude) => (magnitude > 0 ? Math.min(Math.max((Math.log2(magnitude) - LOW) / (HIGH - LOW), 0), 1) : 0);
const pc = (share) => (share * 100).toFixed(3) + "%";

function zoneRects(height) {
  const drawn = [];
  for (const [key, , , start, end] of DATA.zones) {
    drawn.push(draw("rect", { class: `zone zone-${key}`, x: pc(start), width: pc(end - start), height }));
    if (key !== "normal") drawn.push(draw("rect", { fill: `url(#pattern-${key})`, x: pc(start), width: pc(end - start), height }));
  }
  return drawn;
}

function rangePicture(low, high) {
  const picture = draw("svg", { class: "range-cell", width: "100%", height: 20, role: "img" });
  picture.setAttribute("aria-label", high > 0 ? `magnitudes from ${number(low)} to ${number(high)}` : "all zero");
  picture.append(...zoneRects(20));
  if (high > 0) {
    const start = place(low || high), end = place(high);
    picture.append(draw("rect", { class: "range", x: pc(start), y: 6, width: pc(Math.max(end - start, 0.006)), height: 8, rx: 2 }));
    if (high > 2 ** HIGH) picture.append(draw("text", { class: "strong", x: "100%", dx: 4, y: 14 }, "›"));
  }
  return picture;
}

const T = { name: 0, node: 1, zone: 2, min: 3, max: 4, least: 5, most: 6, over: 7, sub: 8, lost: 9, nonfinite: 10 };
const nodeName = (index) => (index < 0 ? "" : NAMES[DATA.graph.nodes[index][0]]);
const opOf = (index) => (index < 0 ? "input" : NAMES[DATA.graph.ops[DATA.graph.nodes[index][1]]]);

function goTo(index) {
  return make("button", { type: "button", class: "more", "aria-label": `${opOf(index)}: show in the graph`, onclick: () => choose(index, true) }, opOf(index));
}

const shares = (r) => `${percent(r[T.over])} overflow, ${percent(r[T.sub])} subnormal, ${percent(r[T.lost])} lost, ${percent(r[T.nonfinite])} not finite`.replaceAll("–", "none");
function zoneWord(r) {
  const key = ZONES[r[T.zone]];
  return make("span", { class: `sign-word word-${key}`, "data-hover": shares(r) }, ZONE_WORDS[key], key === "normal" ? null : make("small", {}, ` ${percent(r[T[key]])} of values`));
}

const TABLES = {
  tensors() {
    const badness = (r) => r[T.zone] * 1e3 + Math.max(r[T.over], r[T.nonfinite], r[T.lost], r[T.sub]);
    return [DATA.tensors, [
      { title: "Tensor", text: (r) => NAMES[r[T.name]], value: (r) => NAMES[r[T.name]], cell: (r) => nameOf(r[T.name], 72) },
      { title: "Made by", text: (r) => opOf(r[T.node]) + "\n" + nodeName(r[T.node]), value: (r) => opOf(r[T.node]), cell: (r) => (r[T.node] < 0 ? "input" : goTo(r[T.node])) },
      { title: "On FP16’s axis", pic: true, csv: (r) => `${r[T.least]} to ${r[T.most]}`, cell: (r) => rangePicture(r[T.least], numeric(r[T.most])) },
      { title: "Values", num: true, value: (r) => numeric(r[T.most]), csv: (r) => `${r[T.min]} to ${r[T.max]}`, cell: (r) => make("span", { class: "sign-word" }, `${number(r[T.min])} … ${number(r[T.max])}`) },
      { title: "Worst zone", value: badness, num: true, csv: (r) => `${ZONE_WORDS[ZONES[r[T.zone]]].slice(2)}: ${shares(r)}`, cell: (r) => zoneWord(r) },
    ], { sort: [4, -1], noun: "tensor", filters: ["over", "nonfinite", "lost", "sub", "normal"].map((key) => ({ title: ZONE_WORDS[key].slice(2), test: (r) => ZONES[r[T.zone]] === key })).filter((f) => DATA.tensors.some(f.test)) }];
  },
  weights() {
    const column = (title, at) => ({ title, num: true, value: (r) => r[at], cell: (r) => (r[at] ? `${r[at].toLocaleString("en-US")} (${percent(r[at] / r[1])})` : "–") });
    return [DATA.weights, [
      { title: "Initializer", text: (r) => NAMES[r[0]], value: (r) => NAMES[r[0]], cell: (r) => nameOf(r[0], 56) },
      { title: "Weights", num: true, value: (r) => r[1], cell: (r) => r[1].toLocaleString("en-US") },
      column("Subnormal", 2), column("Lost", 3), column("Overflow", 4), column("Not finite", 5),
    ], { noun: "initializer" }];
  },
  nodes() {
    const whys = [...new Set(DATA.nodes.map((r) => r[3]))];
    return [DATA.nodes, [
      { title: "Node", text: (r) => NAMES[r[0]], value: (r) => NAMES[r[0]], cell: (r) => nameOf(r[0], 56) },
      { title: "Operator", text: (r) => NAMES[r[1]], value: (r) => NAMES[r[1]], cell: (r) => NAMES[r[1]] },
      { title: "Format", value: (r) => r[2], cell: (r) => r[2] },
      { title: "Why", text: (r) => NAMES[r[3]], value: (r) => NAMES[r[3]], cell: (r) => NAMES[r[3]] },
      { title: "Reason", wordy: true, text: (r) => NAMES[r[4]], cell: (r) => NAMES[r[4]] },
    ], { noun: "node", filters: whys.length > 1 ? whys.map((why) => ({ title: NAMES[why], test: (r) => r[3] === why })) : [] }];
  },
  findings() {
    const words = ["✕ error", "! warning", "i info"];
    return [DATA.findings, [
      { title: "Severity", value: (r) => r[0], cell: (r) => make("span", { class: `sign-word word-${["over", "sub", "normal"][r[0]]}` }, words[r[0]]) },
      { title: "Rule", text: (r) => NAMES[r[1]], value: (r) => NAMES[r[1]], cell: (r) => NAMES[r[1]] },
      { title: "Where", head: true, text: (r) => NAMES[r[2]], value: (r) => NAMES[r[2]], cell: (r) => nameOf(r[2], 40) },
      { title: "What", wordy: true, text: (r) => NAMES[r[3]], cell: (r) => NAMES[r[3]] },
      { title: "What to do", wordy: true, text: (r) => NAMES[r[4]], cell: (r) => NAMES[r[4]] },
    ], { noun: "finding", filters: words.map((title, at) => ({ title: title.slice(2), test: (r) => r[0] === at })) }];
  },
  audit() {
    return [DATA.audit, [
      { title: "Node", text: (r) => NAMES[r[0]], value: (r) => NAMES[r[0]], cell: (r) => nameOf(r[0], 60) },
      { title: "Operator", text: (r) => NAMES[r[1]], value: (r) => NAMES[r[1]], cell: (r) => NAMES[r[1]] },
      { title: "Planned", value: (r) => r[2], cell: (r) => r[2] || "–" },
      { title: "Ran in", value: (r) => r[3], cell: (r) => (r[6] ? make("span", { class: "word-over" }, "✕ " + r[3]) : r[3]) },
      { title: "How sure", value: (r) => r[4], cell: (r) => r[4] },
      { title: "Kernels", text: (r) => NAMES[r[5]], cell: (r) => nameOf(r[5], 60) },
    ], { sort: [2, -1], noun: "node", filters: [{ title: "against the plan", test: (r) => r[6] }, { title: "planned", test: (r) => r[2] }] }];
  },
  kernels() {
    return [DATA.kernels, [
      { title: "Kernel", text: (r) => NAMES[r[0]], value: (r) => NAMES[r[0]], cell: (r) => nameOf(r[0], 60) },
      { title: "Nodes", num: true, value: (r) => r[1], cell: (r) => r[1].toLocaleString("en-US") },
      { title: "Which", text: (r) => NAMES[r[2]], cell: (r) => nameOf(r[2], 90) },
      { title: "Ran in", value: (r) => r[3], cell: (r) => r[3] },
      { title: "Casts inside", value: (r) => r[4], cell: (r) => (r[4] ? "yes" : "–") },
    ], { noun: "kernel", filters: [{ title: "casts inside", test: (r) => r[4] }] }];
  },
};

for (const box of document.querySelectorAll("[data-table]")) {
  buildWhenNear(box, () => {
    const [rows, columns, options] = TABLES[box.dataset.table]();
    buildTable(box, rows, columns, options);
  });
}
