// --- reading: the weights of a word in words and figures ---

const TOP = 6; // number of weights listed

const fixed = (number, digits = 2) => number.toFixed(digits).replace("-", "−");
const percent = (fraction) => `${Math.round(fraction * 100)} %`;

/** The other words of a selection with their weights, the largest first. */
function ranked(alignment, selection) {
  const others = alignment[selection.side === "target" ? "source" : "target"];
  const weights = alignment.weightsOf(selection);
  return others.map((word, index) => ({ word, index, weight: weights[index] })).sort((a, b) => b.weight - a.weight);
}

/** One sentence for screen readers. */
function spoken(alignment, selection) {
  const word = alignment[selection.side][selection.index];
  const most = ranked(alignment, selection).filter(({ weight }) => weight >= 0.05).slice(0, 3);
  const list = most.map((other) => `${other.word} ${fixed(other.weight)}`).join(", ") || "nothing above 0.05";
  return selection.side === "target" ? `${word} read ${list}` : `${word} was read by ${list}`;
}

class ReadingView {
  constructor() {
    this.root = make("section", { className: "reading", "aria-label": "What was read" });
  }

  show(alignment) {
    this.alignment = alignment;
  }

  select(selection) {
    this.root.replaceChildren(...(selection ? this.describe(selection) : this.invite()));
  }

  invite() {
    return [
      make("p", { className: "muted" }, "Point at a word, or press → to step through the target."),
    ];
  }

  describe(selection) {
    const { alignment } = this;
    const target = selection.side === "target";
    const word = make("strong", { dir: "auto" }, alignment[selection.side][selection.index]);
    const rest = ranked(alignment, selection);
    const listed = rest.slice(0, TOP).filter(({ weight }) => weight >= 0.005);
    const sum = rest.reduce((total, { weight }) => total + weight, 0);
    const left = sum - listed.reduce((total, { weight }) => total + weight, 0);
    const items = listed.map((other) => this.item(other, selection));
    if (left >= 0.005) items.push(make("li", { className: "muted" }, `${rest.length - listed.length} others ${fixed(left)} together`));
    return [
      make("h3", {}, word, " ", make("span", { className: "muted" }, target ? "read" : "was read by")),
      make("ol", {}, ...items),
      ...this.notes(selection, sum).map((note) => make("p", { className: "note" }, note)),
    ];
  }

  item({ word, index, weight }, selection) {
    const bar = make("i", { className: "meter" });
    bar.style.setProperty("--w", weight.toFixed(3));
    const item = make("li", {}, make("span", { dir: "auto", className: "other" }, word), bar, make("b", {}, fixed(weight)));
    item.classList.toggle("here", selection.other === index);
    return item;
  }

  notes(selection, sum) {
    const { alignment } = this;
    const notes = [`${selection.side === "target" ? "Target" : "Source"} word ${selection.index}, counted from 0.`];
    if (selection.side === "target") {
      const probability = alignment.probability(selection.index);
      const entropy = alignment.entropyOf(selection.index);
      if (entropy !== null) notes.push(`Entropy of its weights: ${fixed(entropy)} nats.`);
      if (probability !== null) notes.push(`Probability ${percent(probability)}.`);
    } else notes.push(`Weights add up to ${fixed(sum)}.`);
    if (alignment.isEnd(selection)) return notes;
    notes.push(`Hard links: ${this.partners(alignment.links, selection) || "none"}.`);
    if (alignment.possible) notes.push(`Gold: ${this.golden(selection) || "none"}.`);
    return notes;
  }

  /** The words that links join to the selected one. */
  partners(links, { side, index }) {
    const here = side === "source" ? 0 : 1;
    const others = this.alignment[here ? "source" : "target"];
    return links.filter((link) => link[here] === index).map((link) => others[link[1 - here]]).join(", ");
  }

  golden(selection) {
    const sure = keysOf(this.alignment.sure);
    const only = this.alignment.possible.filter((link) => !sure.has(`${link}`));
    const parts = [this.partners(this.alignment.sure, selection), this.partners(only, selection)];
    return [parts[0] && `${parts[0]} (sure)`, parts[1] && `${parts[1]} (possible)`].filter(Boolean).join(", ");
  }
}

