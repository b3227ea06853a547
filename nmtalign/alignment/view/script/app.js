// --- app: the state of the page, and what changes it ---

const LEAVING = 90; // milliseconds in which the pointer may cross from one word to the next
const LAYOUTS = { auto: "Auto", lines: "Lines", columns: "Columns" };

const counted = (number, one, many = `${one}s`) => `${number.toLocaleString("en")} ${number === 1 ? one : many}`;
const sameWord = (a, b) => a?.side === b?.side && a?.index === b?.index;

class App {
  constructor(store) {
    this.store = store;
    this.place = -1; // of the sentence in the page
    this.entry = 0; // place among the entries of the sentence
    this.beside = null; // the entry beside it, if any
    this.picked = null; // the word that stays selected
    this.pointed = null; // the word under the pointer
    this.shown = { soft: true, hard: true, gold: true, matrix: true };
    this.layout = "auto";
    this.panes = [];
    this.player = new Player(() => this.step(1), () => this.drawPlayer());
    this.finder = new Finder(store, (place) => this.open(place), () => this.load());
    this.commands = commandsOf(this);
  }

  get sentence() {
    return this.store.sentences[this.place];
  }

  get selection() {
    return this.pointed ?? this.picked;
  }

  start() {
    this.introduce();
    this.listen();
    return this.followAddress();
  }

  // --- facts about the file ---

  introduce() {
    const { about } = this.store;
    const facts = [counted(about.sentences, "sentence")];
    if (!about.complete) facts[0] = `the first ${facts[0]} of a longer file`;
    if (about.entries !== about.sentences) facts.push(counted(about.entries, "entry", "entries"));
    const [first] = about.models;
    if (first.attributes.direction) facts.push(first.attributes.direction);
    for (const { name, counts } of about.models) {
      if (counts) facts.push(`${about.models.length > 1 ? `${name} ` : ""}${aerText(counts.aer)}`);
    }
    find("facts").textContent = facts.join(" · ");
    this.button("gold").hidden = !about.gold;
    listKeys(find("keys"));
    this.describeFiles(about);
  }

  describeFiles(about) {
    const rows = about.models.flatMap(({ name, file, records, attributes, counts }) => [
      [name, `${file}, ${counted(records, "record")}`],
      ...Object.entries(attributes).map(([key, value]) => [key.replaceAll("_", " "), value]),
      ...(counts ? [["against gold", `AER ${fixed(counts.aer, 4)}, precision ${fixed(counts.precision, 4)}, recall ${fixed(counts.recall, 4)}`]] : []),
    ]);
    if (about.gold) rows.push(["gold links", about.gold]);
    rows.push(["made with", `nmtalign ${about.version}`]);
    for (const [name, value] of rows) find("about").append(make("dt", {}, name), make("dd", {}, value));
  }

  // --- choosing a sentence and an entry ---

  /** Opens a sentence; it is drawn as soon as its weights are unpacked. */
  async open(place, { entry = 0, beside = null, selection = null, keep = false } = {}) {
    if (place === undefined || !this.store.sentences[place]) return;
    const moved = place !== this.place;
    this.place = place;
    this.entry = this.sentence[entry] ? entry : 0;
    this.beside = beside !== null && this.sentence[beside] ? beside : this.defaultBeside(keep);
    this.picked = selection;
    this.pointed = null;
    this.player.stop();
    this.finder.list.reveal(place);
    this.writeAddress(moved && !keep);
    await this.load();
  }

  /** When another sentence is opened, the page still compares two entries. */
  defaultBeside(closed) {
    if (closed || this.beside === null || this.sentence.length < 2) return null;
    return this.entry === 0 ? this.otherModel() : 0;
  }

  /** The first entry of another model; without one, the next entry. */
  otherModel() {
    const other = this.sentence.findIndex(({ model }) => model !== this.sentence[this.entry].model);
    return other >= 0 ? other : (this.entry + 1) % this.sentence.length;
  }

  async load() {
    const { place } = this;
    const entries = [this.entry, this.beside].filter((entry) => entry !== null).map((entry) => this.sentence[entry]);
    const alignments = await Promise.all(entries.map((entry) => this.store.alignment(entry)));
    if (place !== this.place) return; // another was opened meanwhile
    while (this.panes.length < entries.length) this.panes.push(new Pane((kind, word) => this.point(kind, word)));
    this.panes.length = entries.length;
    find("panes").replaceChildren(...this.panes.map((pane) => pane.root));
    const terms = this.finder.terms;
    this.panes.forEach((pane, number) => pane.show(alignments[number], this.nameOf(entries[number]), terms));
    if (this.picked && !alignments[0].holds(this.picked)) this.picked = null;
    this.drawControls();
    this.lay();
    if (this.picked) this.panes[0].words.reach(this.picked);
  }

  nameOf(entry) {
    const { models } = this.store.about;
    const parts = [];
    if (models.length > 1) parts.push(models[entry.model].name);
    if (this.sentence.some(({ rank }) => rank)) parts.push(`n-best ${entry.rank + 1}`);
    return parts.join(", ") || `Sentence ${entry.id}`;
  }

  // --- drawing ---

  lay() {
    for (const pane of this.panes) pane.lay(this.shown, this.layout);
    this.draw();
  }

  draw() {
    for (const pane of this.panes) pane.draw(this.shown, this.selection);
  }

  drawSelection() {
    for (const pane of this.panes) pane.select(this.shown, this.selection);
  }

  button(command) {
    return document.querySelector(`[data-command="${command}"]`);
  }

  drawControls() {
    find("where").textContent = `${this.sentence[0].id}`;
    find("where").title = `Sentence ${this.sentence[0].id}, counted from 0`;
    for (const name of Object.keys(this.shown)) this.button(name).setAttribute("aria-pressed", this.shown[name]);
    this.button("compare").hidden = this.store.about.entries === this.store.about.sentences;
    this.button("compare").disabled = this.sentence.length < 2;
    this.button("compare").setAttribute("aria-pressed", this.beside !== null);
    find("layout").textContent = LAYOUTS[this.layout];
    this.drawEntries();
    this.drawPlayer();
  }

  drawEntries() {
    const tabs = this.sentence.map((entry, number) => {
      const chosen = number === this.entry;
      const tab = make("button", { type: "button", className: "tab", role: "tab", tabIndex: chosen ? 0 : -1 }, this.nameOf(entry));
      tab.setAttribute("aria-selected", chosen);
      tab.classList.toggle("beside", number === this.beside);
      if (entry.logProb !== null) tab.append(make("span", { className: "muted" }, ` ${fixed(entry.logProb, 1)}`));
      tab.addEventListener("click", () => this.chooseEntry(number));
      return tab;
    });
    const focused = find("entries").contains(document.activeElement);
    find("entries").hidden = tabs.length < 2;
    find("entries").replaceChildren(...tabs);
    if (focused) tabs[this.entry].focus();
  }

  drawPlayer() {
    const { playing, speed } = this.player;
    find("play").setAttribute("aria-pressed", playing);
    find("play-icon").setAttribute("href", playing ? "#icon-pause" : "#icon-play");
    find("speed").textContent = speed === 0.5 ? "½×" : `${speed}×`;
  }

  // --- selecting a word ---

  point(kind, word) {
    clearTimeout(this.leaving);
    if (kind === "over") this.hover(word);
    else if (kind === "out") this.leaving = setTimeout(() => this.hover(null), LEAVING);
    else if (kind === "focus" && sameWord(word, this.picked)) return;
    else this.pick(kind === "pick" && sameWord(word, this.picked) ? null : { side: word.side, index: word.index });
  }

  hover(word) {
    if (sameWord(word, this.pointed) && word?.other === this.pointed?.other) return;
    this.pointed = word;
    this.drawSelection();
  }

  pick(word) {
    this.picked = word;
    this.pointed = null;
    this.writeAddress(false);
    this.drawSelection();
    find("announce").textContent = word ? spoken(this.panes[0].alignment, word) : "";
    if (word) this.panes[0].words.reach(word);
  }

  /** Selects the word that is this number of words further; returns false at the end. */
  step(by) {
    const alignment = this.panes[0]?.alignment;
    if (!alignment || alignment.empty) return false;
    const side = this.picked?.side ?? "target";
    const last = alignment[side].length - 1;
    const wanted = this.picked ? this.picked.index + by : by > 0 ? 0 : last;
    const index = Math.min(Math.max(wanted, 0), last);
    if (this.picked?.index === index) return false;
    this.pick({ side, index });
    return true;
  }

  clear() {
    this.player.stop();
    this.pick(null);
  }

  /** Selects the word of the other side that has the largest weight for the selected word. */
  goTo(side) {
    const alignment = this.panes[0]?.alignment;
    if (!alignment || alignment.empty || this.picked?.side === side) return;
    const index = this.picked ? ranked(alignment, this.picked)[0].index : 0;
    this.pick({ side, index });
  }

  // --- commands ---

  run(command) {
    const entry = /^entry-(\d)$/.exec(command);
    if (entry) this.chooseEntry(Number(entry[1]) - 1);
    else this.commands[command]();
  }

  /** Whether the words of the stepped side are written from right to left. */
  backwards() {
    const pane = this.panes[0];
    return pane?.layout === "lines" && pane.words.lines[this.picked?.side ?? "target"].dir === "rtl";
  }

  playOrPause() {
    if (this.player.playing) return this.player.stop();
    const alignment = this.panes[0]?.alignment;
    if (!alignment || alignment.empty) return undefined;
    const atEnd = this.picked && this.picked.index === alignment[this.picked.side].length - 1;
    if (!this.picked || atEnd) this.pick({ side: this.picked?.side ?? "target", index: 0 });
    return this.player.start();
  }

  chooseEntry(number) {
    if (!this.sentence[number] || number === this.entry) return;
    const beside = this.beside === number ? this.entry : this.beside;
    this.open(this.place, { entry: number, beside, selection: this.picked, keep: true });
  }

  compare() {
    if (this.sentence.length < 2) return;
    const beside = this.beside === null ? this.otherModel() : null;
    this.open(this.place, { entry: this.entry, beside, selection: this.picked, keep: true });
  }

  toggle(name) {
    if (this.button(name).hidden) return;
    this.shown[name] = !this.shown[name];
    this.drawControls();
    if (name === "matrix") this.lay();
    else this.draw();
  }

  nextLayout() {
    const names = Object.keys(LAYOUTS);
    this.layout = names[(names.indexOf(this.layout) + 1) % names.length];
    this.drawControls();
    this.lay();
  }

  turnTheme() {
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    const now = document.documentElement.dataset.theme ?? (dark ? "dark" : "light");
    document.documentElement.dataset.theme = now === "dark" ? "light" : "dark";
    this.draw();
  }

  // --- the address ---

  writeAddress(moved) {
    const { id } = this.sentence[0];
    const address = writeAddress({ sentence: id, entry: this.entry, beside: this.beside, selection: this.picked });
    if (address === location.hash) return;
    if (moved && location.hash) history.pushState(null, "", address);
    else history.replaceState(null, "", address);
  }

  followAddress() {
    const { sentence, entry, beside, selection } = readAddress(location.hash);
    const place = this.finder.index.numbers.get(sentence) ?? 0;
    return this.open(place, { entry: entry ?? 0, beside, selection, keep: true });
  }

  // --- events ---

  listen() {
    document.addEventListener("keydown", (event) => {
      const command = commandOf(event);
      if (!command) return;
      event.preventDefault();
      this.run(command);
    });
    document.addEventListener("keyup", (event) => {
      if (event.key === " " && event.target.closest?.(".word")) event.preventDefault(); // the space key plays; it does not press the button
    });
    for (const button of document.querySelectorAll("[data-command]")) {
      button.addEventListener("click", () => this.run(button.dataset.command));
    }
    find("theme").addEventListener("click", () => this.turnTheme());
    find("help-button").addEventListener("click", () => find("help").showModal());
    this.listenToSurroundings();
  }

  /** Follows changes of the address, the width of the window and the system's colours. */
  listenToSurroundings() {
    addEventListener("popstate", () => this.followAddress());
    let width = 0;
    new ResizeObserver(([{ contentRect }]) => {
      if (Math.round(contentRect.width) !== width && width) requestAnimationFrame(() => this.lay());
      width = Math.round(contentRect.width);
    }).observe(find("panes"));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }
}

async function main() {
  const store = new Store(document);
  await store.open();
  const app = new App(store);
  await app.start();
  document.documentElement.dataset.ready = Math.round(performance.now());
  setTimeout(() => app.finder.index.prepare(), 50); // so that the first search does not wait
}

main().catch((error) => {
  const old = typeof DecompressionStream === "undefined";
  find("panes").textContent = old
    ? "This browser is too old for this page (it lacks DecompressionStream); Chrome 103, Firefox 113 and Safari 16.4 have it."
    : `The page cannot be read: ${error.message}`;
});
