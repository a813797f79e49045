// Pictures along the model: one thin line a tensor or a node, in execution order, drawn as a few paths.
"use strict";
function buildStrip(box, { height, count, lines, ticks, zones, read, go, marks = [], blocks = [] }) {
  const picture = draw("svg", { height: height + (blocks.length ? 44 : 26), "aria-hidden": "true" });
  box.setAttribute("aria-label", box.getAttribute("aria-label") + `: ${count.toLocaleString("en-US")} in all; arrow keys move, Enter goes to the node`);
  if (zones) for (const [key, , title, start, end] of DATA.zones) {
    const area = { x: 0, y: pc(0), width: "100%" };
    const top = (1 - end) * height, high = (end - start) * height;
    picture.append(draw("rect", { ...area, class: `zone zone-${key}`, y: top, height: high }));
    if (key !== "normal") picture.append(draw("rect", { ...area, fill: `url(#pattern-${key})`, y: top, height: high }));
    picture.append(draw("text", { class: "zone-name", x: "100%", dx: -6, y: top + 13, "text-anchor": "end" }, title));
  }
  for (const [y, text] of ticks) {
    picture.append(draw("line", { class: "grid", x1: 0, x2: "100%", y1: y * height, y2: y * height }));
    picture.append(draw("text", { class: "tick", x: -8, y: y * height, dy: 4, "text-anchor": "end" }, text));
  }
  const inner = draw("svg", { width: "100%", height, viewBox: `0 0 ${Math.max(count, 1)} ${height}`, preserveAspectRatio: "none" });
  for (const [kind, path] of lines) inner.append(draw("path", { class: `thin ${kind}`, d: path, "vector-effect": "non-scaling-stroke" }));
  const cursor = draw("line", { class: "cursor", y1: 0, y2: height, x1: -1, x2: -1, "vector-effect": "non-scaling-stroke", visibility: "hidden" });
  inner.append(cursor);
  picture.append(inner, ...marks, draw("text", { class: "tick", x: 0, y: height + 18 }, "inputs"), draw("text", { class: "tick", x: "100%", y: height + 18, "text-anchor": "end" }, "outputs"), ...blockNames(blocks, count, height + 26));
  box.append(picture);
  let at = -1;
  function show(index, x, y) {
    at = Math.min(Math.max(index, 0), count - 1);
    cursor.setAttribute("x1", at + 0.5);
    cursor.setAttribute("x2", at + 0.5);
    cursor.setAttribute("visibility", "visible");
    const area = inner.getBoundingClientRect();
    showHover(read(at), x ?? area.left + (at + 0.5) / count * area.width, y ?? area.top + 20);
  }
  const leave = () => { cursor.setAttribute("visibility", "hidden"); hideHover(); };
  box.addEventListener("pointermove", (event) => {
    const area = inner.getBoundingClientRect();
    if (event.clientX < area.left || event.clientX > area.right) return leave();
    show(Math.floor((event.clientX - area.left) / area.width * count), event.clientX, event.clientY);
  }, { passive: true });
  box.addEventListener("pointerleave", leave);
  box.addEventListener("blur", leave);
  box.addEventListener("click", () => { if (at >= 0) go(at); });
  box.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1, PageDown: 25, PageUp: -25 }[event.key];
    if (step) { event.preventDefault(); show(at + step); }
    else if (event.key === "Home" || event.key === "End") { event.preventDefault(); show(event.key === "Home" ? 0 : count - 1); }
    else if (event.key === "Enter" && at >= 0) go(at);
  });
}

// Below a strip, which part of the model it is over: runs of nodes of one block, named where there is room.
function blockNames(blocks, count, y) {
  return blocks.flatMap(([start, end, name], i) => {
    const width = (end - start) / count;
    const room = draw("svg", { x: pc(start / count), y, width: pc(width), height: 16, class: "block" }, draw("rect", { class: `block block-${i % 2}`, width: "100%", height: 16 }));
    if (width > 0.03) room.append(draw("text", { class: "tick", x: 3, y: 12 }, name));
    return [room];
  });
}

// Runs of one block along names in execution order: the first part of a name that not all share.
function blocksOf(names) {
  const split = names.map((name) => name.split("/").filter(Boolean).slice(0, -1));
  const named = split.filter((parts) => parts.length);
  if (named.length * 2 < names.length) return [];
  let same = 0;
  while (named.every((parts) => parts.length > same && parts[same] === named[0][same])) same++;
  const runs = [];
  split.forEach((parts, i) => {
    const name = parts.length > same ? brief(parts[same], 40) : null, last = runs[runs.length - 1];
    if (name === null && last) last[1] = i + 1; // what has no block of its own belongs to the one before
    else if (last && last[2] === name) last[1] = i + 1;
    else runs.push([i, i + 1, name ?? ""]);
  });
  return runs.length > 1 && runs.length <= 400 ? runs : [];
}
let ownBlocks = null;
const graphBlocks = () => (ownBlocks ??= blocksOf(GRAPH.nodes.map((node) => NAMES[node[0]])));

const STRIPS = {
  overview(box) {
    const rank = GRAPH.nodes.map(() => 0), places = [], widths = [];
    for (const [from, to] of GRAPH.edges) if (from < to) rank[to] = Math.max(rank[to], rank[from] + 1);
    const count = Math.max(...rank, 0) + 1, at = Array.from({ length: count }, () => []);
    rank.forEach((r, node) => at[r].push(node));
    const lanes = Math.min(Math.max(...at.map((nodes) => nodes.length)), 14), lane = 9, top = 4, room = 70, height = top + lanes * lane + 14 + room;
    const part = new Map(DATA.shares.filter((r) => r[6] >= 0).map((r) => [r[6], r]));
    const paths = {};
    const add = (key, d) => { paths[key] = (paths[key] ?? "") + d; };
    at.forEach((nodes, r) => {
      const shown = nodes.length > lanes ? lanes : nodes.length;
      for (let i = 0; i < shown; i++) add(`area-${stateOf(nodes[i])[1]}`, `M${r} ${top + i * lane}h0.92v${lane - 1.5}h-0.92z`);
      const told = nodes.map((n) => part.get(n)).filter(Boolean), share = told.reduce((sum, p) => sum + numeric(p[3]), 0);
      const size = (Math.log10(Math.max(share, 1e-6)) + 6) / 6;
      if (told.some((p) => p[5])) add("area-break", `M${r} ${height - room}h0.92v${room}h-0.92z`);
      else if (size > 0) add("area-share", `M${r} ${(height - size * room).toFixed(1)}h0.92V${height}h-0.92z`);
    });
    buildStrip(box, {
      height, count, ticks: [[(top + 6) / height, "nodes"], [(height - room) / height, "error"]],
      lines: Object.entries(paths), blocks: blocksOf(at.map((nodes) => nodeName(nodes[0]))),
      read: (r) => at[r].slice(0, 4).map((n) => { const p = part.get(n); return `${opOf(n)} ${brief(nodeName(n), 60)}: ${stateOf(n)[2]}${p ? p[5] ? ", overflows in FP16" : `, ${percent(numeric(p[3]))} of the error` : ""}`; }).join("\n") + (at[r].length > 4 ? `\nand ${at[r].length - 4} more beside` : ""),
      go: (r) => choose([...at[r]].sort((a, b) => (part.get(b)?.[5] ?? 0) - (part.get(a)?.[5] ?? 0) || numeric(part.get(b)?.[3] ?? 0) - numeric(part.get(a)?.[3] ?? 0))[0], true),
    });
  },
  shares(box) {
    const height = 190, low = -6, count = DATA.given, top = 22, room = height - top;
    const view = Number(box.dataset.view), own = view ? new Map(DATA.by_output[view - 1]) : null;
    const drawn = own ? DATA.shares.filter((r) => own.has(r[0]) || r[5]).map((r) => [...r.slice(0, 3), own.get(r[0]) ?? 0, ...r.slice(4)]) : DATA.shares;
    const at = new Map(drawn.map((r) => [r[0], r]));
    const paths = { fp16: "", fp32: "", repaired: "" }, dots = [];
    let breaks = "";
    const names = Array(count).fill(""); // of what is not drawn, the name before it
    for (const r of DATA.shares) names[r[0]] = NAMES[r[1]];
    for (let i = 1; i < count; i++) names[i] ||= names[i - 1];
    for (const [index, , , share, state, broken] of drawn) {
      const key = DATA.states[state][1], line = key === "bf16" || key === "fp32" ? "fp32" : key === "repaired" ? key : "fp16";
      const part = (Math.log10(Math.max(numeric(share), 10 ** low)) - low) / -low, y = top + (1 - part) * room;
      if (broken) { breaks += `M${index + 0.5} ${height}V0`; continue; } // larger than any share: to the top
      if (part > 0) paths[line] += `M${index + 0.5} ${height}V${y.toFixed(1)}`;
      if (part > 0 && line === "repaired") dots.push([index, y]);
    }
    buildStrip(box, {
      height, count, blocks: blocksOf(names), ticks: [...(breaks ? [[6 / height, "breaks"]] : []), ...(drawn.every((r) => r[5]) ? [] : [[top / height, "100%"], ...[-2, -4, -6].map((e) => [(top + (e / low) * room) / height, e === low ? "less" : number(10 ** (e + 2)) + "%"])])],
      lines: Object.entries(paths).filter(([, path]) => path).map(([key, path]) => [`share-line-${key}`, path]).concat(breaks ? [["share-line-break", breaks]] : []),
      marks: [
        ...dots.map(([index, y]) => draw("svg", { x: pc((index + 0.5) / count), y, overflow: "visible" }, draw("circle", { class: "share-dot", r: 2.6 }))),
      ],
      read: (i) => {
        const r = at.get(i);
        if (!r) return drawn.every((each) => each[5]) ? "does not break" : "error too small to draw";
        return `${brief(NAMES[r[1]], 90)}\n${NAMES[r[2]]}: ${r[5] ? "breaks in FP16: larger than any rounding error" : `${percent(numeric(r[3]))} of the error`}\n${DATA.states[r[4]][2]}`;
      },
      go: (i) => { const r = at.get(i); if (r && r[6] >= 0) choose(r[6], true); },
    });
  },
  ranges(box) {
    const height = 240, rows = DATA.tensors, paths = { normal: "", sub: "", lost: "", over: "", nonfinite: "" };
    rows.forEach((r, i) => {
      const most = numeric(r[T.most]);
      if (!(most > 0)) return;
      const top = (1 - place(most)) * height, end = Math.max((1 - place(r[T.least] || most)) * height, top + 2);
      paths[ZONES[r[T.zone]]] += `M${i + 0.5} ${top.toFixed(1)}V${end.toFixed(1)}`;
    });
    buildStrip(box, {
      height, count: rows.length, zones: true, blocks: blocksOf(rows.map((r) => nodeName(r[T.node]))),
      lines: Object.entries(paths).filter(([, path]) => path).map(([key, path]) => [`zone-line-${key}`, path]),
      ticks: DATA.ticks.map(([x, text]) => [1 - x, text.replace("-", "−")]),
      read: (i) => {
        const r = rows[i];
        return `${brief(NAMES[r[T.name]], 90)}\n${opOf(r[T.node])}: ${number(r[T.min])} … ${number(r[T.max])}\n${shares(r)}`;
      },
      go: (i) => { if (rows[i][T.node] >= 0) choose(rows[i][T.node], true); },
    });
  },
  errors(box) {
    const height = 200, count = DATA.graph.nodes.length, low = -9, high = 1, found = new Map(DATA.errors);
    let path = "";
    for (const [node, error] of DATA.errors) {
      const share = (Math.log10(Math.max(numeric(error), 10 ** low)) - low) / (high - low);
      path += `M${node + 0.5} ${height}V${((1 - Math.min(share, 1)) * height).toFixed(1)}`;
    }
    const ticks = [-8, -6, -4, -2, 0].map((e) => [1 - (e - low) / (high - low), number(10 ** e)]);
    buildStrip(box, {
      height, count, ticks, lines: [["line-error", path]], blocks: graphBlocks(),
      read: (i) => `${brief(nodeName(i), 90)}\n${opOf(i)}: ${found.has(i) ? "relative error " + number(found.get(i)) : "no error of its own"}`,
      go: (i) => choose(i, true),
    });
  },
};
const views = document.querySelectorAll(".along-view"), chosenView = document.getElementById("along-view");
if (chosenView) chosenView.addEventListener("change", () => views.forEach((each, i) => { each.hidden = i !== Number(chosenView.value); }));
for (const box of document.querySelectorAll("[data-strip]")) buildWhenNear(box, () => STRIPS[box.dataset.strip](box));
