// Tables whose columns come with the data: a cell is a number, nothing, or the place of a text among the names.
"use strict";
for (const box of document.querySelectorAll("[data-sheet]")) {
  const { noun, columns, rows, filter } = DATA.tables[box.dataset.sheet];
  const text = (row, i) => (row[i] === null ? "" : Array.isArray(row[i]) ? NAMES[row[i][0]] : number(row[i]));
  const size = (value) => (typeof value === "number" ? value : { inf: Infinity, "-inf": -Infinity }[value] ?? -Infinity);
  const named = columns.map((_, i) => !i || rows.some((row) => text(row, i).length >= 20)); // no column in two typefaces
  const made = columns.map(([title, kind], i) => ({
    title: title[0].toUpperCase() + title.slice(1), num: kind === "num", wordy: kind === "wordy",
    text: (row) => text(row, i), csv: (row) => (kind === "num" ? row[i] ?? "" : text(row, i)),
    value: kind === "num" ? (row) => size(row[i]) : (row) => text(row, i),
    cell: (row) => (kind !== "text" || row[i] === null ? text(row, i) : !named[i] ? make("span", { class: "sign-word" }, text(row, i)) : nameOf(row[i][0], 60)),
  }));
  const kinds = filter === null ? [] : [...new Set(rows.map((row) => text(row, filter)))].filter(Boolean);
  buildWhenNear(box, () => buildTable(box, rows, made, { noun, filters: kinds.map((kind) => ({ title: kind, test: (row) => text(row, filter) === kind })) }));
}
