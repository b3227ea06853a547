// --- data: the blocks of the page, unpacked when they are needed ---

const END = "</s>";
const SURPRISE_STEPS = 20;
const SURPRISE_UNKNOWN = 255;
const BLOCKS_KEPT = 6;

function bytesOf(base64) {
  const letters = atob(base64);
  const bytes = new Uint8Array(letters.length);
  for (let i = 0; i < letters.length; i++) bytes[i] = letters.charCodeAt(i);
  return bytes;
}

async function unpack(element) {
  const packed = new Blob([bytesOf(element.textContent)]).stream();
  const stream = packed.pipeThrough(new DecompressionStream("deflate-raw"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

const parseJson = (bytes) => JSON.parse(new TextDecoder().decode(bytes));

/** Each word is followed by a line feed. */
const wordsOf = (text) => text.split("\n").slice(0, -1);

/** [i, j, i, j ...] as a list of pairs. */
function pairsOf(flat) {
  if (!flat) return null;
  return Array.from({ length: flat.length / 2 }, (_, k) => [flat[2 * k], flat[2 * k + 1]]);
}

/** A record. It has its words from the start, and its weights after `Store.alignment` has unpacked them. */
class Entry {
  constructor(columns, row, block) {
    this.id = columns.id[row];
    this.rank = columns.rank[row];
    this.model = columns.model[row];
    this.first = Boolean(columns.first[row]);
    this.end = columns.end[row];
    this.logProb = columns.log_prob[row];
    this.aer = columns.aer[row];
    this.sourceText = columns.source[row];
    this.targetText = columns.target[row];
    this.block = block;
    this.row = row;
  }

  get source() {
    return wordsOf(this.sourceText);
  }

  get target() {
    return wordsOf(this.targetText);
  }
}

/** The content of a drawing: the words (with `</s>` if it has weights), the matrix and the links. */
class Alignment {
  constructor(entry, detail) {
    const tail = entry.end ? [END] : [];
    this.entry = entry;
    this.words = { source: entry.source, target: entry.target };
    this.source = [...this.words.source, ...tail];
    this.target = [...this.words.target, ...tail];
    Object.assign(this, detail);
  }

  get empty() {
    return !this.words.source.length || !this.words.target.length;
  }

  weight(target, source) {
    return this.cells ? this.cells[target * this.source.length + source] / 255 : 0;
  }

  /** The weights between a word and those of the other side. */
  weightsOf({ side, index }) {
    const others = side === "target" ? this.source : this.target;
    return others.map((_, other) => (side === "target" ? this.weight(index, other) : this.weight(other, index)));
  }

  /** The probability of a target word, or null where it is not known. */
  probability(target) {
    const steps = this.surprise[target];
    return steps === undefined || steps === SURPRISE_UNKNOWN ? null : Math.exp(-steps / SURPRISE_STEPS);
  }

  /** The entropy in nats of the weights of a target word, or null where there are none. */
  entropyOf(target) {
    return this.entropy[target] ?? null;
  }

  isEnd({ side, index }) {
    return index === this.words[side].length;
  }

  holds({ side, index }) {
    return index >= 0 && index < this[side].length;
  }
}

class Store {
  constructor(root) {
    const elements = (kind) => [...root.querySelectorAll(`script[data-kind="${kind}"]`)];
    this.about = JSON.parse(elements("about")[0].textContent);
    this.wordBlocks = elements("words");
    this.weightBlocks = elements("weights");
    this.entries = [];
    this.sentences = []; // each a list of entries
    this.members = this.wordBlocks.map(() => []); // entries of each block
    this.unpacked = new Map();
  }

  async open() {
    const columns = await Promise.all(this.wordBlocks.map(async (element) => parseJson(await unpack(element))));
    columns.forEach((block, number) => this.addBlock(block, number));
    for (const element of this.wordBlocks) element.remove();
  }

  addBlock(columns, number) {
    columns.id.forEach((_, row) => {
      const entry = new Entry(columns, row, number);
      this.entries.push(entry);
      this.members[number].push(entry);
      if (entry.first) this.sentences.push([]);
      this.sentences.at(-1).push(entry);
    });
  }

  async alignment(entry) {
    if (!this.unpacked.has(entry.block)) this.keep(entry.block, this.unpackWeights(entry.block));
    const rows = await this.unpacked.get(entry.block);
    return new Alignment(entry, rows[entry.row]);
  }

  keep(block, promise) {
    this.unpacked.set(block, promise);
    if (this.unpacked.size > BLOCKS_KEPT) this.unpacked.delete(this.unpacked.keys().next().value);
  }

  async unpackWeights(block) {
    const bytes = await unpack(this.weightBlocks[block]);
    const length = new DataView(bytes.buffer).getUint32(0, true);
    const columns = parseJson(bytes.subarray(4, 4 + length));
    let offset = 4 + length;
    return this.members[block].map((entry, row) => {
      const size = columns.drawn[row] ? cellCount(entry) : 0;
      const cells = bytes.subarray(offset, (offset += size));
      return {
        cells: columns.drawn[row] ? cells : null,
        links: pairsOf(columns.links[row]),
        sure: pairsOf(columns.sure[row]),
        possible: pairsOf(columns.possible[row]),
        surprise: columns.surprise[row],
        entropy: columns.entropy[row],
      };
    });
  }
}

const cellCount = (entry) => (entry.source.length + entry.end) * (entry.target.length + entry.end);
