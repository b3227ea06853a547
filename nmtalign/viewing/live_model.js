/* The model of the live page in plain JavaScript. This one function needs nothing around it: the page makes a worker
   from its text, and a browser without workers calls it. Names, shapes and equations are those of nmtalign.core and of
   Bahdanau et al. (2015), appendix A. Weights are float32, all other numbers are float64. */
function liveEngine() {
  const EOS = 0, UNK = 1, WORD_START = "▁";

  /* Text to tokens: the rules of nmtalign.text.tokenizer. */

  const SPACES = "\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000";
  const gap = new RegExp(`[${SPACES}]+`, "u"), words = (line) => line.split(gap).filter(Boolean);
  const BYTES = [...Array(256).keys()].map((byte) => byte === 32 ? WORD_START
    : byte > 32 && byte < 127 ? String.fromCharCode(byte) : `<${byte.toString(16).toUpperCase().padStart(2, "0")}>`);
  const BYTE_OF = new Map(BYTES.map((token, byte) => [token, byte > 8 && byte < 14 ? 255 : byte])); // no text gives these
  const blank = new RegExp(`^[${SPACES}\\0-\\x1f\\x7f-\\x9f\\xad\\u061c\\u200b-\\u200f\\u202a-\\u202e\\u2060-\\u206f\\ufeff]*$`, "u");
  const strip = (text) => text.replace(/^ +| +$/g, ""); // `trim` would also remove U+3000 and no-break spaces
  const blanksToSpaces = (line) => strip(line.replace(/[ \t\r\f\v\n]+/g, " "));

  const spaced = () => (line) => line.split(/[ \t\r\f\v\n]+/).filter(Boolean);
  const bytes = () => (line) => {
    const text = blanksToSpaces(line);
    return text ? [...new TextEncoder().encode(` ${text}`)].map((byte) => BYTES[byte]) : [];
  };

  /* Pieces of a text in which "▁" replaces each space and comes before the first word. Unknown characters that are
     neighbours form one piece. */
  function sentencepiece({ pieces, scores }) {
    const ranks = new Map(pieces.map((piece, rank) => [piece, rank]));
    const split = scores ? mostProbable(ranks, scores) : merged(ranks);
    return (line) => {
      const found = [], text = blanksToSpaces(line).replace(/[ ▁]+$/, "").split(" ").filter(Boolean).map((word) => WORD_START + word);
      let unknown = false;
      for (const piece of (scores ? [text.join("")] : text).flatMap(split)) {
        if (unknown && !ranks.has(piece)) found[found.length - 1] += piece;
        else found.push(piece);
        unknown = !ranks.has(piece);
      }
      return found;
    };
  }

  /* Merges the two adjacent pieces whose union has the best rank, until no union is a piece (BPE). */
  const merged = (ranks) => (word) => {
    const found = [...word];
    for (;;) {
      let best = Infinity, at = -1;
      for (let place = 0; place + 1 < found.length; place++) {
        const rank = ranks.get(found[place] + found[place + 1]) ?? Infinity;
        if (rank < best) [best, at] = [rank, place];
      }
      if (at < 0) return found;
      found.splice(at, 2, found[at] + found[at + 1]);
    }
  };

  /* The pieces with the largest sum of scores (unigram), in float32 as sentencepiece adds them. */
  function mostProbable(ranks, scores) {
    const longest = Math.max(...[...ranks.keys()].map((piece) => [...piece].length));
    const unknown = Math.fround(scores.reduce((a, b) => Math.min(a, b)) - 10);
    return (text) => {
      const letters = [...text], ends = letters.map(() => null);
      const before = (place) => (place ? ends[place - 1].total : 0);
      letters.forEach((letter, start) => {
        const reach = (length, score) => {
          const total = Math.fround(score + before(start)), end = start + length - 1;
          if (!ends[end] || total > ends[end].total) ends[end] = { start, total };
        };
        for (let length = 1, piece = ""; length <= longest && start + length <= letters.length; length++) {
          const rank = ranks.get(piece += letters[start + length - 1]);
          if (rank !== undefined) reach(length, scores[rank]);
        }
        if (!ranks.has(letter)) reach(1, unknown);
      });
      const found = [];
      for (let end = letters.length; end > 0; end = ends[end - 1].start) found.unshift(letters.slice(ends[end - 1].start, end).join(""));
      return found;
    };
  }

  /* The rules of Moses: each is a pattern and its replacement, in their order. */
  function moses({ language, letters, alphabetic, lower, numbers, prefixes, numeric }) {
    const set = (ranges) => ranges.map(([first, last]) =>
      `\\u{${first.toString(16)}}-\\u{${last.toString(16)}}`).join("");
    const [L, A, N] = [letters, alphabetic, numbers].map(set);
    const rule = (pattern, by) => {
      const compiled = new RegExp(pattern, "gu");
      return (text) => text.replace(compiled, by);
    };
    const isLower = new RegExp(`^[${set(lower)}]`, "u"), hasLetter = new RegExp(`[${A}]`, "u");
    const known = new RegExp(`^[${L}]*$`, "u");
    const separate = rule(`([^${L}${SPACES}.'\`,\\-])`, " $1 ");
    const commas = [rule(`([^${N}]),`, "$1 , "), rule(`,([^${N}])`, " , $1"), rule(`([${N}]),$`, "$1 , ")];
    const english = [rule(`([^${A}])'([^${A}])`, "$1 ' $2"), rule(`([^${A}${N}])'([${A}])`, "$1 ' $2"),
      rule(`([${A}])'([^${A}])`, "$1 ' $2"), rule(`([${A}])'([${A}])`, "$1 '$2"), rule(`([${N}])'(s)`, "$1 '$2")];
    const french = [rule(`([^${A}])'([^${A}])`, "$1 ' $2"), rule(`([^${A}])'([${A}])`, "$1 ' $2"),
      rule(`([${A}])'([^${A}])`, "$1 ' $2"), rule(`([${A}])'([${A}])`, "$1' $2")];
    const apostrophes = { en: english, fr: french, it: french }[language] ?? [rule("'", " ' ")];
    const [unbroken, beforeNumbers] = [new Set(prefixes), new Set(numeric)];

    const fullStops = (text) => {
      const tokens = words(text);
      return tokens.map((token, place) => {
        const next = tokens[place + 1], prefix = token.slice(0, -1);
        if (!token.endsWith(".") || !prefix) return token;
        const keeps = (prefix.includes(".") && hasLetter.test(prefix))
          || (unbroken.has(prefix) && !beforeNumbers.has(prefix)) || (next && isLower.test(next))
          || (beforeNumbers.has(prefix) && next && /^[0-9]/.test(next));
        return keeps ? token : `${prefix} .`;
      }).join(" ");
    };
    const plain = (line) => {
      let text = separate(strip(line.replace(/[\0-\x1f]/g, "")));
      text = text.replace(/\.{2,}/g, (dots, start) =>
        ` ${"DOT".repeat(dots.length)}MULTI${start + dots.length < text.length ? " " : ""}`);
      text = [...commas, ...apostrophes, fullStops].reduce((done, change) => change(done), text);
      text = text.replace(/\.' ?$/, " . ' ");
      return words(text.replace(/(?:DOT)+MULTI/g, (dots) => ".".repeat((dots.length - 5) / 3)));
    };

    /* Marks that sacremoses does not know stay with their letters: the letters are put back into its tokens. */
    const clusters = new Intl.Segmenter("und", { granularity: "grapheme" });
    /* The letters of a word as [letter with all its marks, the cluster that it is without them]. */
    const lettersOf = (word) => {
      const found = [];
      let before = /^[\p{M}\u200c\u200d]*(?=.)/su.exec(word)?.[0] ?? "";
      for (let rest = word; rest; before = "") {
        const after = rest.slice(before.length), cluster = clusters.segment(after).containing(0).segment;
        const letter = before + cluster + /^\p{M}*/u.exec(after.slice(cluster.length))[0];
        found.push([letter, cluster]);
        rest = rest.slice(letter.length);
      }
      return found;
    };
    const characterFor = (letter) => {
      if ([...letter].length === 1) return letter;
      const [first] = lettersOf(letter.normalize("NFC"))[0][1];
      return /[\p{M}\p{S}]/u.test(first) ? "☺" : first;
    };
    return (line) => {
      const text = words(line).join(" ").replace(/[\0-\x08\x0e-\x1b]/g, "");
      if (/^[\0-\x7f]*$/.test(text)) return plain(text);
      const all = text.split(" ").flatMap((word) => [...lettersOf(word).map(([letter]) => letter), " "]);
      if (all.every((letter) => [...letter].length === 1 || known.test(letter))) return plain(text);
      const left = all.filter((letter) => letter !== " ");
      return plain(all.map(characterFor).join("").replace(/ +$/, ""))
        .map((token) => left.splice(0, [...token].length).join("")).filter(Boolean);
    };
  }

  /* A tokeniser with its vocabulary: the tokens of a line and their ids. As nmtalign does, it takes the composed or
     decomposed form of the text if fewer tokens are unknown then. */
  function side(rules, vocabulary) {
    const tokenize = { spaced, bytes, sentencepiece, moses }[rules.kind](rules);
    const ids = new Map(vocabulary.slice(2).map((word, place) => [word, place + 2]));
    const unknown = (tokens) => tokens.filter((token) => !ids.has(token)).length;
    return (line) => {
      const forms = [blank.test(line) ? [] : tokenize(line)];
      if (!/^[\0-\x7f]*$/.test(line) && unknown(forms[0])) {
        forms.push(...["NFC", "NFD"].map((form) => tokenize(line.normalize(form))));
      }
      const tokens = forms.reduce((best, form) => (unknown(form) < unknown(best) ? form : best));
      return { tokens, ids: tokens.map((token) => ids.get(token) ?? UNK) };
    };
  }

  /* Whole texts of tokens. Words are joined by the gaps that each has before and after it beside a plain word. */
  function textOf(kind, tokens, gaps) {
    if (kind === "sentencepiece") return strip(tokens.join("").replaceAll(WORD_START, " "));
    if (kind !== "bytes") {
      return tokens.map((token, place) => {
        const after = gaps[tokens[place - 1]]?.[1] ?? " ", before = gaps[token]?.[0] ?? " ";
        return (place ? after && before && (after > before ? after : before) : "") + token;
      }).join("");
    }
    const raw = tokens.flatMap((token) => BYTE_OF.get(token) ?? [...new TextEncoder().encode(token)]);
    return strip(new TextDecoder("utf-8", { ignoreBOM: true }).decode(new Uint8Array(raw)));
  }

  /* Vectors and matrices. A matrix is { values, rows, columns }. */

  /* The tensors of a model: float32 vectors, and matrices of eight bits with a scale per row. */
  function unpacked(tensors, base64) {
    const binary = atob(base64), raw = new Uint8Array(binary.length), found = {};
    for (let place = 0; place < raw.length; place++) raw[place] = binary.charCodeAt(place);
    for (const { name, shape, at } of tensors) {
      const columns = shape.at(-1), count = shape.reduce((a, b) => a * b, 1), rows = count / columns;
      if (shape.length === 1) {
        found[name] = new Float32Array(raw.buffer.slice(at, at + 4 * count));
        continue;
      }
      const scales = new Float32Array(raw.buffer.slice(at, at + 4 * rows)), whole = new Int8Array(raw.buffer, at + 4 * rows, count);
      const values = new Float32Array(count);
      for (let row = 0; row < rows; row++) {
        for (let place = row * columns; place < (row + 1) * columns; place++) values[place] = whole[place] * scales[row];
      }
      found[name] = { values, rows, columns };
    }
    return found;
  }

  /* Adds the product of some rows of a matrix and a vector to `sum`, which it returns. */
  function addProduct(sum, matrix, x, first = 0) {
    const { values, columns } = matrix, even = columns - (columns % 4);
    for (let row = 0; row < sum.length; row++) {
      const start = (first + row) * columns;
      let a = 0, b = 0, c = 0, d = 0, k = 0;
      for (; k < even; k += 4) {
        a += values[start + k] * x[k];
        b += values[start + k + 1] * x[k + 1];
        c += values[start + k + 2] * x[k + 2];
        d += values[start + k + 3] * x[k + 3];
      }
      for (; k < columns; k++) a += values[start + k] * x[k];
      sum[row] += a + b + (c + d);
    }
    return sum;
  }
  const product = (matrix, x) => addProduct(new Float64Array(matrix.rows), matrix, x);
  const sigmoid = (x) => 1 / (1 + Math.exp(-x));
  const softmax = (energies) => {
    const most = Math.max(...energies), exps = energies.map((energy) => Math.exp(energy - most));
    const total = exps.reduce((a, b) => a + b, 0);
    return exps.map((one) => one / total);
  };

  /* A model: encoder, attention, decoder and readout. */
  function model({ config, tensors, rules, vocabularies, gaps }, base64) {
    const w = unpacked(tensors, base64), n = config.hidden, papers = config.cell === "paper", order = config.order;
    const attends = config.attention !== "none", targets = vocabularies.target.length;
    const read = { source: side(rules.source, vocabularies.source), target: side(rules.target, vocabularies.target) };

    const embed = (name, word) => {
      const { values, columns } = w[`${name}.weight`], bias = w[`${name}.bias`];
      return Float64Array.from(bias, (b, k) => values[word * columns + k] + b);
    };
    const embedSource = (word) => embed("source_embedding.weight" in w ? "source_embedding" : "target_embedding", word);

    /* The bias (3n) of the inputs of a cell; the paper's cell has one only for its candidate. */
    function inputBias(cell, direction) {
      const bias = new Float64Array(3 * n), own = w[`${cell}.bias`], recurrent = w[`${cell}.recurrent_bias`];
      const of = (weight, k, size) => weight[direction * size + k];
      for (let k = 0; k < 3 * n; k++) {
        if (papers) bias[k] = k < 2 * n ? 0 : of(own, k - 2 * n, n);
        else bias[k] = of(own, k, 3 * n) + (k < 2 * n ? of(recurrent, k, 3 * n) : 0);
      }
      return bias;
    }

    /* One step of a cell from its inputs (3n): the new state, and for each unit the share of the state that is taken
       from the candidate (`update`) and the reset gate. The blocks of the paper's cell are z, r, candidate; those of
       cuDNN's are r, z, candidate, where z keeps the old state and r acts after the product. */
    function step(cell, direction, inputs, state) {
      const recurrent = w[`${cell}.recurrent_weight`], first = 3 * n * direction;
      const gates = addProduct(inputs.slice(0, 2 * n), recurrent, state, first).map(sigmoid);
      const [one, two] = [gates.slice(0, n), gates.slice(n)];
      let sums = inputs.slice(2 * n);
      if (papers) addProduct(sums, recurrent, state.map((s, k) => two[k] * s), first + 2 * n);
      else {
        const bias = w[`${cell}.recurrent_bias`], at = first + 2 * n;
        const hidden = Float64Array.from(bias.subarray(at, at + n));
        addProduct(hidden, recurrent, state, first + 2 * n);
        sums = sums.map((sum, k) => sum + one[k] * hidden[k]);
      }
      const update = papers ? one : two.map((z) => 1 - z), reset = papers ? two : one;
      return { state: state.map((s, k) => (1 - update[k]) * s + update[k] * Math.tanh(sums[k])), update, reset };
    }

    /* The annotations [forward_j; backward_j], the keys U_a annotation_j, and the first state. */
    function encode(ids) {
      const length = ids.length, ways = config.bidirectional ? 2 : 1;
      const annotations = ids.map(() => new Float64Array(ways * n)), weight = w["encoder.cell.input_weight"];
      for (let way = 0; way < ways; way++) {
        const bias = inputBias("encoder.cell", way);
        let state = new Float64Array(n);
        for (let t = 0; t < length; t++) {
          const place = way ? length - 1 - t : t;
          const inputs = addProduct(bias.slice(), weight, embedSource(ids[place]), 3 * n * way);
          ({ state } = step("encoder.cell", way, inputs, state));
          annotations[place].set(state, way * n);
        }
      }
      const forward = annotations.at(-1).subarray(0, n), last = ways === 2 ? annotations[0].subarray(n) : forward;
      const fixed = attends ? null : ways === 2 ? Float64Array.of(...forward, ...last) : forward.slice();
      const initial = w["decoder.initial_weight"], bias = w["decoder.initial_bias"];
      const summary = fixed ?? last;
      const keyWeight = w["decoder.attention.key_weight"]; // the score "dot" has none: its keys are sums of both directions
      const key = (one) => keyWeight ? product(keyWeight, one) : ways === 2 ? one.subarray(0, n).map((h, k) => h + one[n + k]) : one;
      return {
        annotations, fixed, keys: attends ? annotations.map(key) : null,
        initial: initial ? addProduct(Float64Array.from(bias), initial, summary).map(Math.tanh) : last.slice(),
      };
    }

    /* The energies v_a . tanh(W_a s + keys_j), or s . keys_j of the scores "dot" and "general", their softmax, and the
       context. `given` weights replace the softmax. */
    function attend(memory, state, given) {
      if (!attends) return { energies: null, weights: null, context: memory.fixed };
      const v = w["decoder.attention.vector"], query = v ? product(w["decoder.attention.query_weight"], state) : state;
      const energies = memory.keys.map((key) =>
        key.reduce((sum, part, k) => sum + (v ? v[k] * Math.tanh(query[k] + part) : query[k] * part), 0));
      const own = softmax(energies), weights = given ?? own;
      const context = new Float64Array(memory.annotations[0].length);
      memory.annotations.forEach((one, j) => { for (let k = 0; k < one.length; k++) context[k] += weights[j] * one[k]; });
      return { energies, own, weights, context };
    }

    const start = (memory) => ({ hidden: memory.initial, context: memory.fixed, steps: 0 });

    /* One step from the previous word (null at the first step), in the order of the model. */
    function advance(memory, before, word, given) {
      const x = word === null ? null : embed("target_embedding", word);
      const update = (context) => {
        const inputs = inputBias("decoder.cell", 0);
        if (x) addProduct(inputs, w["decoder.cell.input_weight"], x);
        if (context) addProduct(inputs, w["decoder.cell.context_weight"], context);
        return step("decoder.cell", 0, inputs, before.hidden);
      };
      let changed = { state: before.hidden, update: null, reset: null }, look;
      if (order === "look-update-generate") {
        look = attend(memory, before.hidden, given);
        changed = update(look.context);
      } else {
        if (before.steps || order === "update-look-generate") changed = update(before.context);
        look = attend(memory, changed.state, given);
      }
      const total = Float64Array.from(w["readout.bias"]);
      addProduct(total, w["readout.state_weight"], changed.state);
      if (x && w["readout.word_weight"]) addProduct(total, w["readout.word_weight"], x);
      addProduct(total, w["readout.context_weight"], look.context);
      let features = Float64Array.from({ length: total.length / 2 }, (_, k) => Math.max(total[2 * k], total[2 * k + 1]));
      if (w["readout.factor"]) features = product(w["readout.factor"], features);
      const output = w["readout.output_weight"] ?? w["target_embedding.weight"];
      const logProbs = addProduct(Float64Array.from(w["readout.output_bias"]), output, features);
      let most = -Infinity, sum = 0;
      for (let k = 0; k < targets; k++) if (logProbs[k] > most) most = logProbs[k];
      for (let k = 0; k < targets; k++) sum += Math.exp(logProbs[k] - most);
      const logSum = most + Math.log(sum);
      for (let k = 0; k < targets; k++) logProbs[k] -= logSum;
      const context = order === "look-update-generate" && attends ? null : look.context;
      return {
        after: { hidden: changed.state, context, steps: before.steps + 1 }, logProbs,
        shown: { ...look, state: changed.state, update: changed.update, reset: changed.reset },
      };
    }

    /* The weights of a step: those of the user, equal ones if attention is off, or null for the model's own. */
    const givenAt = ({ keys }, options, number) =>
      options.weights?.[number] ?? (options.uniform && attends ? keys.map(() => 1 / keys.length) : null);

    /* The `count` largest numbers, largest first; of equal ones the first comes first. */
    function largest(values, count, banned) {
      const found = [];
      for (let k = 0; k < values.length; k++) {
        if (banned(k) || (found.length === count && !(values[k] > values[found.at(-1)]))) continue;
        let place = found.length;
        while (place && values[k] > values[found[place - 1]]) place--;
        found.splice(place, 0, k);
        if (found.length > count) found.pop();
      }
      return found;
    }

    /* Beam search as in nmtalign.search: open hypotheses are compared by log-probability, finished ones by the mean
       log-probability per word. Every hypothesis stays in `nodes`, with what became of it. The first steps write the
       words `options.forced`. */
    function search(ids, options) {
      const { beam = 5, forced = [] } = options, memory = encode(ids), limit = Math.max(3 * ids.length, forced.length + 1);
      const nodes = [], finished = [];
      let open = [{ id: -1, total: 0, before: start(memory), word: null }], width = beam;
      for (let number = 0; open.length; number++) {
        const moves = [];
        for (const parent of open) {
          const { after, logProbs, shown } = advance(memory, parent.before, parent.word, givenAt(memory, options, number));
          const must = number < forced.length ? forced[number] : number + 1 >= limit ? EOS : null;
          const banned = (word) => (must === null ? word === UNK : word !== must);
          shown.best = largest(logProbs, 8, () => false).map((word) => [word, logProbs[word]]);
          for (const word of largest(logProbs, width + 2, banned)) {
            moves.push({ parent, after, shown, word, gain: logProbs[word], total: parent.total + logProbs[word] });
          }
          delete parent.before;
        }
        moves.sort((a, b) => b.total - a.total);
        const kept = moves.slice(0, width);
        open = [];
        moves.slice(0, kept.length + 2).forEach(({ parent, after, shown, word, gain, total }, rank) => {
          const node = { id: nodes.length, parent: parent.id, step: number, word, gain, total, shown, forced: number < forced.length };
          nodes.push(node);
          parent.children = (parent.children ?? 0) + (rank < kept.length ? 1 : 0);
          if (rank >= kept.length) Object.assign(node, { fate: "dropped", against: kept.at(-1).total });
          else if (word === EOS) {
            Object.assign(node, { fate: "finished", score: total / (number + 1) });
            finished.push(node);
            width--;
          } else open.push(Object.assign(node, { fate: "open", before: after }));
        });
        for (const node of nodes) {
          if (node.step === number - 1 && node.fate === "open" && !node.children) {
            const own = moves.find((move) => move.parent === node);
            Object.assign(node, { fate: "given up", best: own?.total, against: kept.at(-1).total });
          }
        }
        const threshold = Math.max(-Infinity, ...finished.map((node) => node.score));
        if (open.length && !(Math.max(...open.map((node) => node.total)) / limit > threshold)) {
          for (const node of open) Object.assign(node, { fate: "stopped", reachable: node.total / limit, against: threshold });
          open = [];
        }
      }
      const best = finished.reduce((one, other) => (other.score > one.score ? other : one));
      const path = [];
      for (let node = best; node; node = nodes[node.parent]) path.unshift(Object.assign(node, { chosen: true }));
      return { memory, nodes, path, best };
    }

    const pieces = (ids) => ids.map((id) => vocabularies.target[id]);
    const ended = (side, text) => {
      const { tokens, ids } = read[side](text);
      return { tokens: [...tokens, "</s>"], ids: [...ids, EOS] };
    };

    return {
      tokenize: ({ text, side = "source" }) => read[side](text),

      /* The best translation of a text, all its steps, and the tree of the search. */
      translate({ text, ...options }) {
        const { tokens: source, ids } = ended("source", text), { memory, nodes, path, best } = search(ids, options);
        const numbers = path.map((node) => node.word);
        return {
          source, ids, target: pieces(numbers), numbers, score: best.score, total: best.total,
          text: textOf(rules.target.kind, pieces(numbers.slice(0, -1)), gaps),
          logProbs: path.map((node) => node.gain), annotations: memory.annotations,
          steps: path.map(({ shown }) => ({ ...shown, best: shown.best.map(([word, value]) => [vocabularies.target[word], value, word]) })),
          tree: options.tree ? nodes.map(({ shown, before, ...node }) => ({ ...node, token: vocabularies.target[node.word] })) : null,
        };
      },

      /* The log-probability of each word of a given translation, `</s>` included. */
      loss({ text, reference, ...options }) {
        const { ids } = ended("source", text), wanted = ended("target", reference), memory = encode(ids);
        let state = start(memory), previous = null;
        const logProbs = wanted.ids.map((word, number) => {
          const { after, logProbs: all } = advance(memory, state, previous, givenAt(memory, options, number));
          [state, previous] = [after, word];
          return all[word];
        });
        return { ...wanted, logProbs };
      },
    };
  }

  const models = [];
  return {
    load: ({ model: described, weights }) => models.push(model(described, weights)) - 1,
    ...Object.fromEntries(["translate", "loss", "tokenize"].map((name) =>
      [name, ({ number = 0, ...request }) => models[number][name](request)])),
  };
}
