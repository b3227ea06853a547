// --- matrix: the heat map, grey as in the paper's Figure 3: 0 black, 1 white ---

const CELLS = { smallest: 13, largest: 26 };

class MatrixView {
  constructor(point) {
    this.canvas = make("canvas", { className: "cells" });
    this.canvas.setAttribute("role", "img");
    this.marks = { target: make("div", { className: "mark across" }), source: make("div", { className: "mark down" }) };
    this.tops = make("div", { className: "tops", "aria-hidden": "true" });
    this.lefts = make("div", { className: "lefts", "aria-hidden": "true" });
    this.field = make("div", { className: "field" }, this.canvas, this.marks.source, this.marks.target);
    this.grid = make("div", { className: "grid" }, make("div"), this.tops, this.lefts, this.field);
    const scale = [make("span", {}, "0"), make("i", { className: "greys" }), make("span", {}, "1")];
    this.legend = make("p", { className: "legend", "aria-hidden": "true" }, ...scale);
    this.root = make("figure", { className: "matrix" }, make("div", { className: "matrix-scroll" }, this.grid), this.legend);
    this.listen(point);
  }

  listen(point) {
    const cellAt = (event) => {
      const box = this.canvas.getBoundingClientRect();
      const target = Math.floor((event.clientY - box.top) / this.cell);
      const source = Math.floor((event.clientX - box.left) / this.cell);
      const selection = { side: "target", index: target, other: source };
      return this.alignment.holds(selection) && source >= 0 && source < this.alignment.source.length ? selection : null;
    };
    this.field.addEventListener("pointermove", (event) => {
      if (event.pointerType !== "touch") point(cellAt(event) ? "over" : "out", cellAt(event));
    });
    this.field.addEventListener("pointerleave", () => point("out", null));
    this.field.addEventListener("click", (event) => cellAt(event) && point("pick", cellAt(event)));
    for (const labels of [this.tops, this.lefts]) {
      labels.addEventListener("pointerover", (event) => {
        const { side, index } = event.target.dataset;
        if (side) point("over", { side, index: Number(index) });
      });
      labels.addEventListener("pointerleave", () => point("out", null));
      labels.addEventListener("click", (event) => {
        const { side, index } = event.target.dataset;
        if (side) point("pick", { side, index: Number(index) });
      });
    }
  }

  show(alignment) {
    this.alignment = alignment;
    for (const [side, labels] of [["source", this.tops], ["target", this.lefts]]) {
      labels.replaceChildren(...alignment[side].map((word, index) => this.label(word, { side, index })));
    }
    const { source, target } = alignment;
    this.canvas.setAttribute("aria-label", `Heat map: ${target.length} target rows, ${source.length} source columns`);
  }

  label(word, { side, index }) {
    const label = make("span", { className: "label", title: word, dir: "auto" }, word);
    Object.assign(label.dataset, { side, index });
    label.classList.toggle("end", this.alignment.isEnd({ side, index }));
    return label;
  }

  /** Sizes the cells so that the source fits into the available width, if they stay large enough to see. */
  lay(width) {
    const { source, target } = this.alignment;
    const margin = Math.min(130, width * 0.3);
    const fitting = Math.floor((width - margin) / source.length);
    this.cell = Math.min(Math.max(fitting, CELLS.smallest), CELLS.largest);
    const size = { width: source.length * this.cell, height: target.length * this.cell };
    this.grid.style.setProperty("--cell", `${this.cell}px`);
    this.grid.style.setProperty("--margin", `${margin}px`);
    Object.assign(this.field.style, { width: `${size.width}px`, height: `${size.height}px` });
    const scale = Math.min(devicePixelRatio || 1, 2);
    Object.assign(this.canvas, { width: size.width * scale, height: size.height * scale });
    this.canvas.getContext("2d").setTransform(scale, 0, 0, scale, 0, 0);
    this.tops.style.height = "0";
    const highest = Math.max(...[...this.tops.children].map((label) => label.scrollHeight)); // words written upwards
    this.tops.style.height = `${Math.min(highest + 4, 130)}px`;
  }

  paint(shown) {
    const pen = this.canvas.getContext("2d");
    const { alignment, cell } = this;
    for (let j = 0; j < alignment.target.length; j++) {
      for (let i = 0; i < alignment.source.length; i++) {
        const grey = Math.round(alignment.weight(j, i) * 255);
        pen.fillStyle = `rgb(${grey},${grey},${grey})`;
        pen.fillRect(i * cell, j * cell, cell, cell);
      }
    }
    if (shown.gold && alignment.possible) this.paintGold(pen);
    if (shown.hard) this.paintHard(pen, shown);
  }

  colour(name) {
    return getComputedStyle(this.canvas).getPropertyValue(name);
  }

  paintGold(pen) {
    const sure = keysOf(this.alignment.sure);
    pen.strokeStyle = this.colour("--gold-bright");
    pen.lineWidth = 2;
    for (const [i, j] of this.alignment.possible) {
      pen.setLineDash(sure.has(`${[i, j]}`) ? [] : [2, 3]);
      pen.strokeRect(i * this.cell + 1.5, j * this.cell + 1.5, this.cell - 3, this.cell - 3);
    }
    pen.setLineDash([]);
  }

  paintHard(pen, shown) {
    const right = shown.gold && this.alignment.possible ? keysOf(this.alignment.possible) : null;
    for (const [i, j] of this.alignment.links) {
      pen.fillStyle = this.colour(right && !right.has(`${[i, j]}`) ? "--wrong-bright" : "--soft-bright");
      pen.beginPath();
      pen.arc((i + 0.5) * this.cell, (j + 0.5) * this.cell, Math.max(2, this.cell * 0.16), 0, 2 * Math.PI);
      pen.fill();
    }
  }

  /** Frames the row of a target word or the column of a source word. */
  select(selection) {
    for (const side of SIDES) {
      const mark = this.marks[side];
      mark.classList.toggle("on", selection?.side === side);
      if (selection?.side !== side) continue;
      const by = selection.index * this.cell;
      mark.style.transform = side === "target" ? `translateY(${by}px)` : `translateX(${by}px)`;
    }
    for (const label of [...this.tops.children, ...this.lefts.children]) {
      const { side, index } = label.dataset;
      label.classList.toggle("chosen", selection?.side === side && selection.index === Number(index));
    }
  }
}

