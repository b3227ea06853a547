// --- finder: the search field, the order and the list of sentences ---

const LIST_STEPS = { ArrowDown: 1, ArrowUp: -1, PageDown: 8, PageUp: -8, Home: -Infinity, End: Infinity };
const find = (id) => document.getElementById(id);

class Finder {
  /** `open(place)` opens a sentence; `again()` draws the open sentence again after the search has changed. */
  constructor(store, open, again) {
    this.store = store;
    this.open = open;
    this.again = again;
    this.query = "";
    this.order = "file";
    this.index = new SearchIndex(store.sentences);
    this.list = new SentenceList(find("list"), store, open);
    for (const [name, [label]] of Object.entries(ORDERS)) {
      if (name !== "aer" || store.about.gold) find("order").append(make("option", { value: name }, label));
    }
    find("list").classList.toggle("with-gold", Boolean(store.about.gold));
    this.listen();
    this.search("");
  }

  get terms() {
    return parseQuery(this.query);
  }

  search(query) {
    this.query = query;
    const places = ordered(this.index.find(query), this.store.sentences, this.order);
    this.list.show(places, this.terms);
    const all = this.store.sentences.length.toLocaleString("en");
    find("found").textContent = query.trim() ? `${places.length.toLocaleString("en")} of ${all}` : "";
  }

  focus() {
    this.openDrawer(true);
    find("query").focus();
    find("query").select();
  }

  /** In a narrow window the list is a drawer over the page. */
  openDrawer(open) {
    document.body.classList.toggle("drawer-open", open);
    find("drawer").setAttribute("aria-expanded", open);
    if (open) this.list.reveal(this.list.current);
  }

  leave() {
    find("query").blur();
    this.openDrawer(false);
  }

  listen() {
    const query = find("query");
    query.addEventListener("input", () => this.search(query.value));
    query.addEventListener("keydown", (event) => this.queryKey(event));
    find("list").addEventListener("keydown", (event) => this.listKey(event));
    find("list").addEventListener("click", () => this.openDrawer(false));
    find("drawer").addEventListener("click", () => this.openDrawer(!document.body.classList.contains("drawer-open")));
    find("order").addEventListener("change", () => {
      this.order = find("order").value;
      this.search(this.query);
    });
  }

  queryKey(event) {
    if (event.key === "Enter") this.enter();
    else if (event.key === "Escape") this.clear();
    else if (event.key === "ArrowDown" || event.key === "ArrowUp") this.open(this.list.neighbour(LIST_STEPS[event.key]));
    else return;
    event.preventDefault();
  }

  /** Opens the first sentence found, unless the one that is open is among them and no number was asked for. */
  enter() {
    const { places, current } = this.list;
    if (places.includes(current) && !NUMBER.test(this.query.trim())) this.again();
    else this.open(places[0]);
    this.leave();
  }

  clear() {
    find("query").value = "";
    this.search("");
    this.again();
    this.leave();
  }

  listKey(event) {
    const step = LIST_STEPS[event.key];
    if (step) this.open(this.list.neighbour(step));
    else if (event.key === "Enter") this.openDrawer(false);
    else return;
    event.preventDefault();
  }
}
