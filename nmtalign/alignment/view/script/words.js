// --- words: the two lines of words, or columns of them, with the curves between ---

const SIDES = ["source", "target"];
const SIZES = [20, 18, 16, 15, 14]; // pixels of the letters; if the last does not fit either, the words are in columns
const RIGHT_TO_LEFT = /[\p{Script=Hebrew}\p{Script=Arabic}\p{Script=Syriac}\p{Script=Thaana}\p{Script=Nko}]/u;
const LETTER = /\p{L}/u;

/** The direction in which most of the words are written. */
function directionOf(words) {
  const lettered = words.filter((word) => LETTER.test(word));
  return lettered.filter((word) => RIGHT_TO_LEFT.test(word)).length * 2 > lettered.length ? "rtl" : "ltr";
}

class WordsView {
  constructor(point) {
    this.canvas = make("canvas", { className: "soft-links" });
    this.svg = document.createElementNS(SVG, "svg");
    this.svg.setAttribute("class", "hard-links");
    for (const drawing of [this.canvas, this.svg]) drawing.setAttribute("aria-hidden", "true");
    this.lines = {};
    for (const side of SIDES) {
      this.lines[side] = make("div", { className: `line ${side}`, role: "group", "aria-label": `${side} words` });
    }
    this.stage = make("div", { className: "stage" }, this.canvas, this.svg, this.lines.source, this.lines.target);
    this.root = make("div", { className: "words" }, this.stage);
    this.curves = new Curves(this.canvas, this.svg);
    this.listen(point);
  }

  /** `point(kind, selection)`: kind "over", "out" or "pick". */
  listen(point) {
    const selected = (event) => {
      const word = event.target.closest(".word");
      return word && { side: word.dataset.side, index: Number(word.dataset.index) };
    };
    this.stage.addEventListener("pointerover", (event) => {
      if (event.pointerType !== "touch") point(selected(event) ? "over" : "out", selected(event));
    });
    this.stage.addEventListener("pointerleave", () => point("out", null));
    this.stage.addEventListener("click", (event) => selected(event) && point("pick", selected(event)));
    this.stage.addEventListener("focusin", (event) => {
      if (event.target.matches(":focus-visible")) point("focus", selected(event));
    });
  }

  /** Takes an alignment; `terms` are those of the search, whose words are underlined. */
  show(alignment, terms) {
    this.alignment = alignment;
    for (const side of SIDES) {
      const words = alignment[side].map((word, index) => this.word(word, { side, index }, terms));
      this.lines[side].replaceChildren(...words);
      this.lines[side].dir = directionOf(alignment.words[side]);
    }
  }

  word(text, { side, index }, terms) {
    const end = this.alignment.isEnd({ side, index });
    const word = make(
      "button",
      { className: "word", type: "button", tabIndex: index ? -1 : 0 },
      make("span", { className: "amount", "aria-hidden": "true" }),
      make("span", { className: "bar", "aria-hidden": "true" }),
      make("span", { className: "text", dir: "auto" }, text),
    );
    word.classList.toggle("end", end);
    word.classList.toggle("found", !end && matches(text, terms, side));
    Object.assign(word.dataset, { side, index });
    return word;
  }

  /** Chooses the size of the letters and, unless one is wanted, the layout. Returns the layout. */
  fit(wanted) {
    const { style } = this.stage;
    for (const drawing of [this.canvas, this.svg]) Object.assign(drawing.style, { width: "0", height: "0" });
    this.stage.className = "stage in-lines";
    for (const size of SIZES) {
      style.setProperty("--letters", `${size}px`);
      if (wanted !== "columns" && this.stage.offsetWidth <= this.root.clientWidth) return "lines";
    }
    style.setProperty("--letters", "16px");
    if (wanted === "lines") return "lines";
    this.stage.className = "stage in-columns";
    return "columns";
  }

  /** Measures where the words are; nothing is selected afterwards. */
  measure() {
    const across = this.stage.classList.contains("in-columns");
    const endsOf = (side) => [...this.lines[side].children].map((word) => endOf(word, side, across));
    const size = { width: this.stage.offsetWidth, height: this.stage.offsetHeight };
    this.curves.lay(this.alignment, { source: endsOf("source"), target: endsOf("target") }, across, size);
  }

  /** Shows the weights of a word, or of none, on the words of the other side, and slides the curves there. */
  select(selection, shown) {
    const weights = selection && this.alignment.weightsOf(selection);
    for (const side of SIDES) {
      const read = selection && selection.side !== side;
      [...this.lines[side].children].forEach((word, index) => {
        const weight = read && shown.soft ? weights[index] : 0;
        word.style.setProperty("--w", weight.toFixed(3));
        word.firstChild.textContent = weight >= 0.045 ? weight.toFixed(2).replace(/^0/, "") : "";
        word.classList.toggle("chosen", !read && selection?.index === index);
      });
    }
    this.curves.slide(selection, shown.soft);
    this.curves.emphasise(selection);
  }

  link(shown, selection) {
    this.curves.link(shown, selection);
  }

  /** Makes the word reachable with the Tab key, moves the focus there from another word, and scrolls to it. */
  reach({ side, index }) {
    for (const word of this.lines[side].children) word.tabIndex = -1;
    const word = this.lines[side].children[index];
    word.tabIndex = 0;
    if (document.activeElement?.classList.contains("word")) word.focus({ preventScroll: true });
    const behavior = calm.matches ? "auto" : "smooth";
    if (this.curves.across) word.scrollIntoView({ block: "nearest", behavior });
    else this.scrollTo(word.offsetLeft + word.parentElement.offsetLeft, word.offsetWidth, behavior);
  }

  /** Scrolls only sideways, because the reader may look at the heat map below. */
  scrollTo(left, width, behavior) {
    const { scrollLeft, clientWidth } = this.root;
    if (left < scrollLeft || left + width > scrollLeft + clientWidth) {
      this.root.scrollTo({ left: left + width / 2 - clientWidth / 2, behavior });
    }
  }
}

/** Where curves meet a word: the middle of its inner edge, and how wide the word is along the line. */
function endOf(word, side, across) {
  const text = word.lastChild;
  const left = word.offsetLeft + word.parentElement.offsetLeft;
  const top = word.offsetTop + word.parentElement.offsetTop;
  if (across) {
    const x = side === "source" ? left + word.offsetWidth + 3 : left - 3;
    return { x, y: top + word.offsetHeight / 2, extent: text.offsetHeight };
  }
  const y = side === "source" ? top + word.offsetHeight + 3 : top - 3;
  return { x: left + word.offsetWidth / 2, y, extent: text.offsetWidth };
}
