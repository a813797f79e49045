// Places a small part of the graph in rows: a node below all that it reads, long edges routed through empty places.
"use strict";
/* nodes: indices in execution order; edges: [from, to, kind, tensor] among them. Returns places and the edges' bends. */
function placeInRows(nodes, edges, widthOf, { rowHeight = 92, gap = 26 } = {}) {
  const rank = new Map(nodes.map((n) => [n, 0]));
  const sorted = [...edges].sort((a, b) => a[1] - b[1] || a[0] - b[0]);
  for (const [from, to] of sorted) rank.set(to, Math.max(rank.get(to), rank.get(from) + 1));
  for (const n of [...nodes].reverse()) { // what nothing holds up comes down to its first reader
    const readers = edges.filter((e) => e[0] === n), feeders = edges.some((e) => e[1] === n);
    if (!feeders && readers.length) rank.set(n, Math.min(...readers.map((e) => rank.get(e[1]))) - 1);
  }
  const least = Math.min(...rank.values());
  const rows = [];
  const put = (item, row) => { (rows[row] ||= []).push(item); item.row = row; return item; };
  const items = new Map(nodes.map((n) => [n, put({ node: n, width: widthOf(n), up: [], down: [] }, rank.get(n) - least)]));
  const link = (a, b) => { a.down.push(b); b.up.push(a); };
  const chains = edges.map((edge) => {
    const start = items.get(edge[0]), end = items.get(edge[1]), chain = [start];
    for (let row = start.row + 1; row < end.row; row++) chain.push(put({ node: null, width: 12, up: [], down: [] }, row));
    chain.push(end);
    for (let i = 1; i < chain.length; i++) link(chain[i - 1], chain[i]);
    return { edge, chain };
  });
  for (let row = 0; row < rows.length; row++) rows[row] ||= [];
  rows.forEach((row) => row.forEach((item, i) => { item.order = i; }));
  const middle = (others) => others.reduce((sum, other) => sum + other.order, 0) / others.length;
  for (let sweep = 0; sweep < 8; sweep++) {
    const down = sweep % 2 === 0;
    for (const row of down ? rows : [...rows].reverse()) {
      for (const item of row) {
        const others = down ? item.up : item.down;
        item.key = others.length ? middle(others) : item.order;
      }
      row.sort((a, b) => a.key - b.key || a.order - b.order);
      row.forEach((item, i) => { item.order = i; });
    }
  }
  for (const row of rows) {
    let x = 0;
    for (const item of row) { item.x = x + item.width / 2; x += item.width + gap; }
    for (const item of row) item.x -= (x - gap) / 2;
  }
  const centre = (others) => others.reduce((sum, other) => sum + other.x, 0) / others.length;
  for (let sweep = 0; sweep < 10; sweep++) {
    for (const row of sweep % 2 ? [...rows].reverse() : rows) {
      for (const item of row) {
        const others = sweep % 2 ? item.down : item.up;
        if (others.length) item.x = centre(others);
      }
      for (let i = 1; i < row.length; i++) row[i].x = Math.max(row[i].x, row[i - 1].x + (row[i - 1].width + row[i].width) / 2 + gap);
      const over = row.length ? row.reduce((sum, item) => sum + item.x - (((sweep % 2 ? item.down : item.up).length) ? centre(sweep % 2 ? item.down : item.up) : item.x), 0) / row.length : 0;
      for (const item of row) item.x -= over;
    }
  }
  for (const row of rows) for (const item of row) item.y = item.row * rowHeight;
  return { items, chains };
}
