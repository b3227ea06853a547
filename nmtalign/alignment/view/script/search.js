// --- search: the words of every sentence, whatever their capitals and accents ---

const NUMBER = /^#?(\d+)$/; // the number of a sentence; with # only that sentence is found
const PLAIN = /^[\x00-\x7f]*$/;

/** Text to compare: lower case, without the accents of Latin, Greek and Cyrillic letters. */
function fold(text) {
  const lower = text.toLowerCase();
  return PLAIN.test(lower) ? lower : lower.normalize("NFKD").replace(/[\u0300-\u036f]/g, "").normalize("NFKC");
}

/** [{side, text, whole}] of a query such as: s:house "red car" 12 */
function parseQuery(query) {
  const parts = query.matchAll(/(?:([st]):)?(?:"([^"]*)"?|(\S+))/gi);
  return [...parts]
    .map(([, side, quoted, bare]) => ({
      side: side ? { s: "source", t: "target" }[side.toLowerCase()] : null,
      whole: quoted !== undefined,
      text: fold((quoted ?? bare).trim()),
    }))
    .filter((term) => term.text);
}

class SearchIndex {
  constructor(sentences) {
    this.sentences = sentences;
    this.texts = null;
    this.numbers = new Map();
    sentences.forEach(([entry], place) => this.numbers.has(entry.id) || this.numbers.set(entry.id, place));
  }

  /** Folds all texts, once. */
  prepare() {
    this.texts ??= this.sentences.map((entries) => ({
      source: searchable(entries.map((entry) => entry.sourceText)),
      target: searchable(entries.map((entry) => entry.targetText)),
    }));
  }

  /** Places of the sentences that contain all terms; the sentence with a searched number comes first. */
  find(query) {
    const terms = parseQuery(query);
    if (!terms.length) return this.sentences.map((_, place) => place);
    const number = NUMBER.exec(query.trim());
    const own = number ? this.numbers.get(Number(number[1])) : undefined;
    if (query.trim().startsWith("#")) return own === undefined ? [] : [own];
    this.prepare();
    const found = [];
    this.texts.forEach((text, place) => place !== own && terms.every((term) => holds(text, term)) && found.push(place));
    return own === undefined ? found : [own, ...found];
  }
}

/** The words separated by spaces; equal texts only once. */
const searchable = (texts) => ` ${fold([...new Set(texts)].join("\n")).replace(/\s+/g, " ").trim()} `;

function holds(text, term) {
  const wanted = term.whole ? ` ${term.text} ` : term.text;
  if (term.side) return text[term.side].includes(wanted);
  return text.source.includes(wanted) || text.target.includes(wanted);
}

/** Whether a word matches the query; for highlighting. */
function matches(word, terms, side) {
  const folded = fold(word);
  return terms.some((term) => {
    if (term.side && term.side !== side) return false;
    return term.whole ? term.text.split(" ").includes(folded) : folded.includes(term.text);
  });
}

// Orders of the list: [name, what is compared (smaller first), whether the page has it].
const perWord = (entry) => (entry.logProb ?? 0) / (wordsOf(entry.targetText).length + 1);
const ORDERS = {
  file: ["in the file's order", null],
  aer: ["worst AER first", (entry) => -(entry.aer ?? -1)],
  doubt: ["least probable first", perWord],
  long: ["longest first", (entry) => -entry.targetText.length],
};

function ordered(places, sentences, order) {
  const key = ORDERS[order][1];
  if (!key) return places;
  const keyed = places.map((place) => [key(sentences[place][0]), place]);
  return keyed.sort(([a, left], [b, right]) => a - b || left - right).map(([, place]) => place);
}
