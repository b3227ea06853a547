// --- pane: one entry: its figures, words, heat map and reading ---

/** |A|, |S|, |A and S|, |A and P| and the rates, as `nmtalign aer` counts them; null without gold. */
function countsOf({ links, sure, possible }) {
  if (!possible) return null;
  const found = keysOf(links);
  const hits = (gold) => gold.filter((link) => found.has(`${link}`)).length;
  const share = (part, whole) => (whole ? part / whole : 1);
  const [inSure, inPossible] = [hits(sure), hits(possible)];
  return {
    links: found.size,
    sure: sure.length,
    possible: possible.length,
    precision: share(inPossible, found.size),
    recall: share(inSure, sure.length),
    aer: 1 - share(inSure + inPossible, found.size + sure.length),
  };
}

const READING = 320; // pixels beside the heat map

class Pane {
  constructor(point) {
    this.figures = make("header", { className: "figures" });
    this.words = new WordsView(point);
    this.matrix = new MatrixView(point);
    this.reading = new ReadingView();
    this.detail = make("div", { className: "detail" }, this.matrix.root, this.reading.root);
    this.body = make("div", { className: "body" }, this.words.root, this.detail);
    this.root = make("article", { className: "pane" }, this.figures, this.body);
  }

  show(alignment, name, terms) {
    this.alignment = alignment;
    this.figures.replaceChildren(...this.facts(name));
    for (const view of [this.words, this.matrix, this.reading]) view.show(alignment, terms);
    this.body.hidden = alignment.empty;
  }

  facts(name) {
    const { entry } = this.alignment;
    const facts = [make("h2", {}, name)];
    const add = (text, title = "", kind = "fact") => facts.push(make("span", { className: kind, title }, text));
    if (this.alignment.empty) add("nothing was aligned: a side has no words");
    else if (!this.alignment.cells) add("too long: its weights were left out of the page");
    if (entry.logProb !== null && !this.alignment.empty) {
      add(`log-probability ${fixed(entry.logProb)}`, "natural logarithm");
      add(`${fixed(perWord(entry))} a word`);
    }
    const counts = countsOf(this.alignment);
    if (counts) {
      add(aerText(counts.aer), "alignment error rate of the hard links", "fact strong");
      add(`precision ${fixed(counts.precision)}, recall ${fixed(counts.recall)}`);
      add(`${counts.links} links, ${counts.sure} sure, ${counts.possible} possible`, "possible links include the sure ones");
    } else add(`${this.alignment.links.length} links`);
    return facts;
  }

  /** Fits everything into the available width. */
  lay(shown, wanted) {
    if (this.alignment.empty) return;
    this.body.className = "body lines";
    this.layout = this.words.fit(wanted);
    this.body.className = `body ${this.layout}`;
    this.matrix.root.hidden = !shown.matrix || !this.alignment.cells;
    this.words.measure();
    if (!this.matrix.root.hidden) this.matrix.lay(this.matrixWidth());
  }

  /** The width that the reading beside the matrix leaves. */
  matrixWidth() {
    const { gridTemplateColumns, paddingLeft, paddingRight } = getComputedStyle(this.detail);
    const stacked = gridTemplateColumns.split(" ").length < 2;
    return this.detail.clientWidth - parseFloat(paddingLeft) - parseFloat(paddingRight) - (stacked ? 8 : READING);
  }

  draw(shown, selection) {
    if (this.alignment.empty) return;
    const held = this.held(selection);
    this.words.link(shown, held);
    if (!this.matrix.root.hidden) this.matrix.paint(shown);
    this.select(shown, selection);
  }

  select(shown, selection) {
    if (this.alignment.empty) return;
    const held = this.held(selection);
    this.words.select(held, shown);
    if (!this.matrix.root.hidden) this.matrix.select(held);
    this.reading.select(held);
  }

  /** The selection, if this entry has that word. */
  held(selection) {
    return selection && this.alignment.holds(selection) ? selection : null;
  }
}
