"use strict";
(() => {
  const find = (id) => document.getElementById(id);
  const form = find("form"), text = find("text"), model = find("model"), beam = find("beam");
  const status = find("status"), result = find("result"), pairs = find("pairs"), button = find("translate");
  let withAlignments = {}, translated = "";

  const element = (name, className, content = "") => {
    const made = document.createElement(name);
    made.className = className;
    made.textContent = content;
    return made;
  };

  const tell = (message, isError = false) => {
    status.textContent = message;
    status.classList.toggle("error", isError);
  };

  /* The JSON of an address; the error message of the server, if it sends one. */
  const ask = async (address, options) => {
    let response;
    try {
      response = await fetch(address, options);
    } catch {
      throw new Error("The server does not answer.");
    }
    const found = await response.json().catch(() => ({}));
    if (!response.ok) throw new Error(found.error || `The server answered ${response.status}.`);
    return found;
  };

  const showModels = async () => {
    const { models } = await ask("health");
    for (const { source, target, alignments } of models) {
      const name = `${source}-${target}`;
      withAlignments[name] = alignments;
      const option = element("option", "", `${source} → ${target}`);
      option.value = name;
      option.dataset.source = source;
      option.dataset.target = target;
      model.append(option);
    }
  };

  /* One line of words; a word reads as a button, and only one of a line is in the order of Tab. */
  const lineOf = (side, words) => {
    const line = element("p", `words ${side}`);
    line.setAttribute("role", "group");
    line.setAttribute("aria-label", side);
    const made = words.map((word, place) => {
      const one = element("span", "word", word);
      one.tabIndex = place ? -1 : 0;
      line.append(one, " ");
      return one;
    });
    return { line, words: made };
  };

  /* Marks a word, and colours those of the other line by their weights. */
  const linkLines = (from, to, weightOf) => {
    const clear = () => {
      for (const word of from.words) word.classList.remove("chosen");
      for (const word of to.words) {
        word.style.removeProperty("--w");
        word.removeAttribute("title");
      }
    };
    from.words.forEach((word, place) => {
      const show = () => {
        clear();
        word.classList.add("chosen");
        to.words.forEach((other, there) => {
          const weight = weightOf(place, there);
          other.style.setProperty("--w", weight);
          other.title = weight.toFixed(2);
        });
        const best = to.words.map((other, there) => [weightOf(place, there), other.textContent]);
        best.sort((a, b) => b[0] - a[0]);
        const named = best.slice(0, 3).filter(([weight]) => weight >= 0.05);
        tell(`${word.textContent}: ${named.map(([weight, name]) => `${name} ${weight.toFixed(2)}`).join(", ")}`);
      };
      word.addEventListener("mouseenter", show);
      word.addEventListener("focus", show);
      word.addEventListener("click", () => word.focus());
      word.addEventListener("mouseleave", clear);
      word.addEventListener("blur", clear);
      word.addEventListener("keydown", (event) => {
        const step = { ArrowRight: 1, ArrowLeft: -1, Home: -place, End: from.words.length - 1 - place }[event.key];
        const next = from.words[place + (step ?? NaN)];
        if (!next) return;
        event.preventDefault();
        word.tabIndex = -1;
        next.tabIndex = 0;
        next.focus();
      });
    });
  };

  const showPair = (found) => {
    const pair = element("div", "pair");
    pair.append(element("p", "text", found.translation));
    const weights = found.alignment;
    if (weights) {
      const source = lineOf("source", found.source_words ?? found.source_tokens);
      const target = lineOf("target", found.words ?? found.tokens);
      linkLines(target, source, (row, column) => weights[row][column]);
      linkLines(source, target, (column, row) => weights[row][column]);
      pair.append(source.line, target.line);
    }
    pairs.append(pair);
  };

  const translate = async () => {
    if (!text.value.trim() || button.disabled) return;
    const chosen = model.selectedOptions[0]?.dataset;
    if (!chosen) return tell("The models are not loaded yet. Reload the page.", true);
    button.disabled = true;
    tell("Translating …");
    const query = new URLSearchParams({ source: chosen.source, target: chosen.target });
    if (withAlignments[model.value]) query.set("alignment", "soft");
    if (beam.value) query.set("beam", beam.value);
    const body = JSON.stringify(text.value.split("\n").map((line) => ({ text: line })));
    try {
      const found = await ask(`translate/json?${query}`, { method: "POST", body });
      pairs.replaceChildren();
      found.forEach(showPair);
      translated = found.map((one) => one.translation).join("\n");
      find("legend").hidden = !withAlignments[model.value];
      result.hidden = false;
      tell("");
    } catch (error) {
      tell(error.message, true);
    }
    button.disabled = false;
  };

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    translate();
  });
  text.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
  });
  find("copy").addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(translated);
      tell("Copied.");
    } catch {
      tell("The browser does not allow copying here.", true);
    }
  });
  showModels()
    .then(() => (document.documentElement.dataset.ready = "1"))
    .catch((error) => tell(error.message, true));
})();
