// --- address: the part of the page's address after #, which tells what is shown ---

/** "#sentence=12&entry=1&target=5" as {sentence, entry, beside, selection}; missing parts are null. */
function readAddress(hash) {
  const values = new URLSearchParams(hash.replace(/^#/, ""));
  const number = (name) => (/^\d+$/.test(values.get(name) ?? "") ? Number(values.get(name)) : null);
  const side = SIDES.find((name) => number(name) !== null);
  return {
    sentence: number("sentence"),
    entry: number("entry"),
    beside: number("beside"),
    selection: side ? { side, index: number(side) } : null,
  };
}

function writeAddress({ sentence, entry, beside, selection }) {
  const values = new URLSearchParams({ sentence });
  if (entry) values.set("entry", entry);
  if (beside !== null) values.set("beside", beside);
  if (selection) values.set(selection.side, selection.index);
  return `#${values}`;
}
