/* The page of the server: text in, translations out, with their alignments. */

const models = {};
let translated = "";

const tell = (message, isError = false) => {
  $("status").textContent = message;
  $("status").classList.toggle("error", isError);
};

/* The JSON of an address; the error message of the server, if it sends one. */
async function ask(address, options) {
  const response = await fetch(address, options).catch(() => { throw new Error("The server does not answer."); });
  const answer = await response.json().catch(() => ({}));
  if (!response.ok) throw new Error(answer.error || `The server answered ${response.status}.`, { cause: response.status });
  return answer;
}

function card(answer) {
  const made = make("section", { class: "card" }, make("p", { class: "words text", dir: "auto" }, answer.translation));
  if (!answer.alignment) return made;
  const source = answer.source_words ?? answer.source_tokens, target = answer.words ?? answer.tokens;
  if (source.length && target.length) made.append(attention(source, target, (t, s) => answer.alignment[t][s], {}, null, false));
  return made;
}

async function translate() {
  const chosen = models[$("model").value];
  if (!$("text").value.trim() || $("translate").disabled) return;
  if (!chosen) return tell("There is no model that translates. Reload the page, or serve one: nmtalign serve -m MODEL", true);
  $("translate").disabled = true;
  tell("Translating …");
  const query = new URLSearchParams({ source: chosen.source, target: chosen.target });
  if (chosen.alignments) query.set("alignment", "soft");
  if ($("beam").value) query.set("beam", $("beam").value);
  const body = JSON.stringify($("text").value.split("\n").map((line) => ({ text: line })));
  const send = () => ask(`translate/json?${query}`, { method: "POST", body });
  let note = "Translated.";
  try {
    const answers = await send().catch((error) => {
      if (error.cause !== 413 || !query.has("alignment")) throw error;
      query.delete("alignment"); // which has a lower limit than the text
      note = "The text is too long to show its alignments.";
      return send();
    });
    $("result").replaceChildren(...answers.map(card));
    translated = answers.map((one) => one.translation).join("\n");
    $("copy").hidden = false;
    tell(note);
  } catch (error) {
    tell(error.message, true);
  }
  $("translate").disabled = false;
}

$("form").addEventListener("submit", (event) => { event.preventDefault(); translate(); });
$("text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) $("form").requestSubmit();
});
$("copy").addEventListener("click", () => copy(translated).then(
  () => tell("Copied."), () => tell("The browser does not allow copying here.", true)));
Promise.all([ask("languages"), ask("health")]).then(([languages, health]) => {
  for (const { code, targets } of languages) {
    for (const target of targets) {
      const name = `${code}-${target}`; // translated by the first of its models: word aligners come last
      models[name] = health.models.find((one) => one.source === code && one.target === target);
      $("model").append(make("option", { value: name }, `${code} → ${target}`));
    }
  }
  document.documentElement.dataset.ready = "1";
}).catch((error) => tell(error.message, true));
