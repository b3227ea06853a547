/* The page of alignments: a list of sentences, and the alignments of the chosen one. */

const about = JSON.parse(stored("about")[0]), AT_ONCE = 200;
const weightBlocks = stored("weights"), unpacked = new Map();
const sentences = []; // each a list of entries
const wordsOf = (text) => text.split("\n").slice(0, -1);
const pairsOf = (flat) => Array.from({ length: flat.length / 2 }, (_, k) => [flat[2 * k], flat[2 * k + 1]]);
const fold = (text) => text.normalize("NFD").replace(/\p{M}/gu, "").toLowerCase();
let place = -1, places = [];

async function unpack(base64) {
  const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/* An entry knows its words and links; `block` and `offset` are the place of its weights. */
function addBlock(columns, block) {
  let offset = 0;
  columns.id.forEach((id, row) => {
    const entry = { block, offset };
    for (const [name, values] of Object.entries(columns)) entry[name] = values[row];
    entry.words = { source: wordsOf(entry.source), target: wordsOf(entry.target) };
    entry.text = fold(`${entry.source}${entry.target}`).replaceAll("\n", " ");
    entry.size = (entry.words.source.length + 1) * (entry.words.target.length + 1);
    if (entry.size > about.largest) entry.size = 0;
    offset += entry.size;
    if (sentences.at(-1)?.[0].id === id) sentences.at(-1).push(entry);
    else sentences.push([entry]);
  });
}

async function weightsOf({ block, offset, size }) {
  if (!unpacked.has(block)) {
    if (unpacked.size > 5) unpacked.delete(unpacked.keys().next().value);
    unpacked.set(block, unpack(weightBlocks[block]));
  }
  return (await unpacked.get(block)).subarray(offset, offset + size);
}

const orders = {
  file: () => 0,
  long: ([entry]) => -entry.words.target.length,
  score: ([entry]) => (entry.log_prob ?? 0) / (entry.words.target.length + 1),
  aer: ([entry]) => -(entry.aer ?? -1),
};

function find() {
  const query = fold($("query").value).trim(), terms = query.split(/\s+/).filter(Boolean), key = orders[$("order").value];
  const isNumber = /^\d+$/.test(query);
  const matches = (sentence) => (isNumber && String(sentence[0].id) === query) ||
    sentence.some((entry) => terms.every((term) => entry.text.includes(term)));
  places = [...sentences.keys()].filter((each) => matches(sentences[each]));
  places.sort((a, b) => key(sentences[a]) - key(sentences[b]) || a - b);
  $("found").textContent = `${places.length.toLocaleString("en")} of ${sentences.length.toLocaleString("en")} sentences${
    about.complete ? "" : ", the first of a longer file"}`;
  $("list").replaceChildren();
  more();
}

/* Shows further sentences of the list. */
function more() {
  const list = $("list"), start = list.children.length;
  for (const each of places.slice(start, start + AT_ONCE)) {
    const [entry] = sentences[each];
    const row = make("a", { href: `#${entry.id}`, "aria-current": String(each === place) }, make("b", {}, String(entry.id)),
      make("span", { dir: "auto" }, entry.words.target.join(" ") || "(empty)"));
    if (entry.aer !== null) row.append(make("span", { class: "quiet" }, `AER ${fixed(entry.aer)}`));
    list.append(make("li", {}, row));
  }
  const left = places.length - list.children.length;
  if (left <= 0) return;
  const button = make("button", { type: "button" }, `Show more of ${left.toLocaleString("en")}`);
  button.addEventListener("click", () => { item.remove(); more(); });
  const item = list.appendChild(make("li", {}, button));
}

async function open(wanted) {
  if (!sentences[wanted]) return;
  place = wanted;
  const [{ id }] = sentences[place];
  history.replaceState(null, "", `#${id}`);
  $("where").textContent = `Sentence ${id}`;
  for (const row of $("list").querySelectorAll("a")) row.setAttribute("aria-current", row.hash === `#${id}`);
  $("list").querySelector("[aria-current=true]")?.scrollIntoView({ block: "nearest", container: "nearest" });
  const panes = await Promise.all(about.models.map((_, model) =>
    pane(model, sentences[place].filter((entry) => entry.model === model))));
  if (wanted === place) $("panes").replaceChildren(...panes);
}

/* The alignment of a model: the best entry, or another one of its n-best list. */
async function pane(model, entries) {
  const shown = make("div", {}), element = make("section", { class: "card" }, shown);
  if (about.models.length > 1) element.prepend(make("h3", {}, about.models[model].name));
  if (!entries.length) shown.append("This file does not have the sentence.");
  const show = async (entry) => shown.replaceChildren(...(await alignment(entry)));
  if (entries.length > 1) {
    const select = make("select", { "aria-label": "Place in the n-best list" }, ...entries.map((entry, k) =>
      make("option", { value: k }, `${entry.rank + 1}. ${cut(entry.words.target.join(" "), 60)}`)));
    select.addEventListener("change", () => show(entries[+select.value]));
    shown.before(select);
  }
  if (entries.length) await show(entries[0]);
  return element;
}

async function alignment(entry) {
  const { source, target } = entry.words;
  const facts = [`${source.length} source and ${target.length} target words`, `${entry.links.length / 2} links`];
  if (entry.log_prob !== null) facts.push(`log-probability ${fixed(entry.log_prob)}`);
  if (entry.aer !== null) facts.push(`AER ${fixed(entry.aer)}`);
  const parts = [make("p", { class: "quiet" }, facts.join(" · "))];
  if (!source.length || !target.length) return [...parts, "There is nothing to draw: one side has no words."];
  if (!entry.size) return [...parts, "This pair is too long for a heat map."];
  const cells = await weightsOf(entry), last = about.end ? ["</s>"] : [], row = source.length + 1;
  const marks = { links: pairsOf(entry.links), sure: pairsOf(entry.sure), possible: pairsOf(entry.possible) };
  return [...parts, attention([...source, ...last], [...target, ...last], (t, s) => cells[t * row + s] / 255, marks)];
}

/* The sentence before or after in the list as it is ordered. */
const step = (by) => open(places[places.indexOf(place) + by]);
const linked = () => sentences.findIndex(([{ id }]) => `#${id}` === location.hash); // -1: the link to the content

function describe() {
  const rows = about.models.flatMap(({ name, about: facts, aer }) =>
    [["file", name], ...Object.entries(facts), ...(aer === null ? [] : [["AER of all shown", fixed(aer, 4)]])]);
  for (const [term, meaning] of [...rows, ["made with", `nmtalign ${about.version}`]]) {
    $("about").append(make("div", {}, make("dt", {}, term.replaceAll("_", " ")), make("dd", {}, meaning)));
  }
  $("order").querySelector("[value=aer]").disabled = about.models[0].aer === null;
}

(async () => {
  for (const [number, text] of stored("words").entries()) {
    addBlock(JSON.parse(new TextDecoder().decode(await unpack(text))), number);
  }
  describe();
  find();
  $("query").addEventListener("input", find);
  $("query").addEventListener("keydown", (event) => event.key === "Enter" && open(places[0]));
  $("order").addEventListener("change", find);
  $("back").addEventListener("click", () => step(-1));
  $("next").addEventListener("click", () => step(1));
  addEventListener("hashchange", () => open(linked()));
  addEventListener("keydown", (event) => {
    const { target, ctrlKey, altKey, metaKey } = event, isScrolled = target.scrollWidth > target.clientWidth;
    if (target.matches("input, select, .word") || isScrolled || ctrlKey || altKey || metaKey) return;
    if (event.key === "ArrowLeft") step(-1);
    if (event.key === "ArrowRight") step(1);
  });
  await open(Math.max(0, linked()));
  document.documentElement.dataset.ready = "1";
})();
