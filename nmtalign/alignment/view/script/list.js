// --- list: the sentences found; only the visible rows exist ---

const ROW = 58; // pixels, as in the style sheet
const SPARE = 6; // extra rows above and below the visible ones
const LISTED = 60; // largest number of words of a row
const BEFORE = 3; // words before the first match, if a row does not begin with the first word

/** Makes an element; properties, then children, which are text or elements: markup is never parsed. */
function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in element) element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

class SentenceList {
  constructor(root, store, choose) {
    this.root = root;
    this.store = store;
    this.choose = choose;
    this.places = [];
    this.terms = [];
    this.current = -1;
    this.space = make("div", { className: "space", role: "presentation" });
    root.append(this.space);
    root.addEventListener("scroll", () => this.draw(), { passive: true });
    root.addEventListener("click", (event) => this.click(event));
    new ResizeObserver(() => this.draw()).observe(root);
  }

  /** Shows these sentences; the words that match the terms are marked. */
  show(places, terms) {
    this.places = places;
    this.terms = terms;
    this.space.style.height = `${places.length * ROW}px`;
    this.root.scrollTop = 0;
    this.reveal(this.current);
  }

  /** Marks the current sentence and scrolls to it. */
  reveal(place) {
    this.current = place;
    const row = this.places.indexOf(place);
    const { scrollTop, clientHeight } = this.root;
    if (row >= 0 && row * ROW < scrollTop) this.root.scrollTop = row * ROW;
    if (row >= 0 && (row + 1) * ROW > scrollTop + clientHeight) this.root.scrollTop = (row + 1) * ROW - clientHeight;
    this.draw();
  }

  /** The listed sentence that is some rows before or after the current one. */
  neighbour(step) {
    const row = this.places.indexOf(this.current);
    if (row < 0) return this.places[0];
    return this.places[Math.min(Math.max(row + step, 0), this.places.length - 1)];
  }

  draw() {
    const first = Math.max(0, Math.floor(this.root.scrollTop / ROW) - SPARE);
    const last = Math.min(this.places.length, Math.ceil((this.root.scrollTop + this.root.clientHeight) / ROW) + SPARE);
    const rows = [];
    for (let row = first; row < last; row++) rows.push(this.row(row));
    this.space.replaceChildren(...rows);
    const here = this.places.includes(this.current) ? `row-${this.current}` : "";
    this.root.setAttribute("aria-activedescendant", here);
  }

  row(number) {
    const place = this.places[number];
    const [entry] = this.store.sentences[place];
    const chosen = place === this.current;
    const line = (side) => make("span", { className: `text ${side}`, dir: "auto" }, ...this.marked(entry, side));
    const badge = entry.aer === null ? [] : [make("span", { className: "badge" }, aerText(entry.aer))];
    const element = make(
      "div",
      { className: "row", role: "option", id: `row-${place}`, "aria-selected": chosen, "aria-posinset": number + 1 },
      make("span", { className: "number" }, String(entry.id), ...badge),
      line("source"),
      line("target"),
    );
    element.dataset.place = place;
    element.setAttribute("aria-setsize", this.places.length);
    element.style.transform = `translateY(${number * ROW}px)`;
    return element;
  }

  marked(entry, side) {
    const words = entry[side];
    if (!this.terms.length) return [words.slice(0, LISTED).join(" ")];
    const found = words.findIndex((word) => matches(word, this.terms, side));
    const start = found > BEFORE + 2 ? found - BEFORE : 0; // the first match is visible
    const pieces = words
      .slice(start, start + LISTED)
      .flatMap((word) => [matches(word, this.terms, side) ? make("mark", {}, word) : word, " "]);
    return [start ? "… " : "", ...pieces];
  }

  click(event) {
    const row = event.target.closest(".row");
    if (row) this.choose(Number(row.dataset.place));
  }
}

const aerText = (aer) => `AER ${aer.toFixed(2)}`;
