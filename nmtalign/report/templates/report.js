"use strict";
for (const button of document.querySelectorAll("button[data-copies]")) {
  button.hidden = false;
  button.addEventListener("click", async () => {
    const code = document.getElementById(button.dataset.copies);
    getSelection().selectAllChildren(code);
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    } catch { /* the text is selected: Ctrl-C copies it */ }
  });
}
for (const table of document.querySelectorAll("table[data-sortable]")) {
  const heads = [...table.querySelectorAll("thead th")], body = table.tBodies[0], given = [...body.rows];
  if (given.length < 2) continue;
  for (const [column, head] of heads.entries()) {
    if (!column) continue;
    const button = document.createElement("button");
    button.type = "button";
    button.className = "sort";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const order = { descending: "ascending", ascending: "none" }[head.ariaSort] ?? "descending";
      for (const other of heads) other.removeAttribute("aria-sort");
      if (order !== "none") head.ariaSort = order;
      const value = (row) => Number(row.cells[column].dataset.value ?? NaN);
      const sign = order === "ascending" ? 1 : -1;
      const sorted = order === "none" ? given : [...given].sort((a, b) => sign * (value(a) - value(b)) || 0);
      body.append(...sorted);
    });
  }
}
