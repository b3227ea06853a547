// --- keys: every command has a key ---

// [keys, command, what it does; "" if the line above says it]
const KEYS = [
  [["/"], "search", "search; Enter opens what is chosen, Esc leaves"],
  [["ArrowRight"], "word-right", "next word"],
  [["ArrowLeft"], "word-left", "word before"],
  [["ArrowUp"], "up", "to the source; in columns, the word before"],
  [["ArrowDown"], "down", "to the target; in columns, the next word"],
  [["s"], "side-source", "to the source"],
  [["t"], "side-target", "to the target"],
  [["Home"], "word-first", "first word"],
  [["End"], "word-last", "last word"],
  [[" "], "play", "play or pause"],
  [["+", "="], "speed", "speed"],
  [["j", "n"], "sentence-on", "next sentence of the list"],
  [["k", "p"], "sentence-back", "sentence before"],
  [["]"], "entry-on", "next entry of the sentence; 1 to 9 go there"],
  [["["], "entry-back", "entry before"],
  [["c"], "compare", "two entries side by side"],
  [["w"], "soft", "soft links on or off"],
  [["h"], "hard", "hard links"],
  [["g"], "gold", "gold links"],
  [["m"], "matrix", "heat map"],
  [["o"], "layout", "words in lines, in columns, or as they fit"],
  [["d"], "theme", "dark or light"],
  [["?"], "help", "this help"],
  [["Escape"], "clear", "no word"],
];
const KEY_NAMES = { ArrowRight: "→", ArrowLeft: "←", ArrowUp: "↑", ArrowDown: "↓", " ": "space", Escape: "Esc" };

/** The command of a key press; null if the focused element uses the key itself. */
function commandOf(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return null;
  if (event.target.closest("input, select, dialog")) return null;
  if (event.target.closest("#list") && /^(Arrow|Home|End|Page)/.test(event.key)) return null;
  if (event.key === " " && event.target.closest("button:not(.word)")) return null;
  if (/^[1-9]$/.test(event.key)) return `entry-${event.key}`;
  return KEYS.find(([keys]) => keys.includes(event.key))?.[1] ?? null;
}

function listKeys(root) {
  for (const [keys, , does] of KEYS) {
    const names = keys.flatMap((key) => [make("kbd", {}, KEY_NAMES[key] ?? key), " "]);
    root.append(make("dt", {}, ...names), make("dd", {}, does));
  }
}
