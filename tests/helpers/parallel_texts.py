"""Small parallel texts, and the files of folders."""


def write_pairs(folder, name, pairs):
    """Writes NAME.en and NAME.fr."""
    paths = folder / f"{name}.en", folder / f"{name}.fr"
    for number, path in enumerate(paths):
        path.write_bytes("".join(f"{pair[number]}\n" for pair in pairs).encode())
    return paths


def files_of(folder):
    """The content of each file in a folder, by name."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}
