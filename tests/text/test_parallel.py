"""One file with both languages: TSV with and without a header, and TMX, read without trust."""

import gzip
import os
import threading
import tracemalloc

import pytest

from nmtalign.errors import InputError, UsageError
from nmtalign.text import parallel
from nmtalign.text.lines import LONGEST_LINE
from nmtalign.text.parallel import ParallelText, languages_of_columns, one_line

TMX = """<?xml version="1.0" encoding="{encoding}"?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4"><header srclang="en-US" datatype="xml"/><body>
<tu><prop type="x">p</prop><tuv xml:lang="en-US"><note>n</note><seg>A <bpt i="1">&lt;b&gt;</bpt>big<ept i="1">&lt;/b&gt;
<sub>sub</sub></ept> <hi>wor<hi>ld</hi></hi>
   &amp; more<ph type="lb"/>end<it pos="end">x</it><ut>y</ut></seg></tuv>
<tuv xml:lang="fr"><seg>Un monde était</seg></tuv><tuv lang="de"><seg>x</seg></tuv></tu>
<tu><tuv lang="en-GB"><seg>1st</seg></tuv><tuv lang="EN"><seg>best</seg></tuv><tuv lang="FR_ca"><seg>un</seg></tuv></tu>
<tu><tuv xml:lang="en"><seg>alone</seg></tuv></tu>
</body></tmx>
"""
PAIRS = [("A big world & more end", "Un monde était"), ("best", "un")]


def text(folder, content, columns=""):
    path = folder / "c"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return ParallelText(path, None, ("en", "fr"), columns)


@pytest.mark.parametrize(
    ("content", "columns", "pairs"),
    [
        ("a b\tc d\ne\tf\n", "", [("a b", "c d"), ("e", "f")]),
        ("fr\ten\nun\tone\n", "", [("one", "un")]),
        ("id\tEnglish\tfr-FR\n1\tone\tun\n", "", [("one", "un")]),
        ("target\tscore\tsource\nun\t1\tone\n", "", [("one", "un")]),
        ("source\tcible\n", "", [("source", "cible")]),  # a pair of a dictionary
        ("but\ttarget\n", "", [("but", "target")]),
        ("PAR1\tone\tun\n", "2,3", [("one", "un")]),  # no Parquet file
        ("a\tb\tc\n", "3,1", [("c", "a")]),
        ("a\tb\t1\n", "1,2", [("a", "b")]),  # without a header a number is that of a column, and no text
        ("x\ty\tz\na\tb\tc\n", "y, z", [("b", "c")]),
        ("fr\ten\tde\nun\tone\teins\n", "2,3", [("one", "eins")]),
        ('"a ""b"""\t"c"\r\n\r\n', "", [('"a ""b"""', '"c"'), ("", "")]),
        ("\ufeffa\tb", "", [("a", "b")]),
        ("", "", []),
        ("\t\n \t \na\tb\n", "", [("", ""), (" ", " "), ("a", "b")]),
    ],
)
def test_columns(tmp_path, content, columns, pairs):
    assert list(text(tmp_path, content, columns)) == pairs
    assert list(text(tmp_path, gzip.compress(b"\xff\xfe" + content.encode("utf-16-le")), columns)) == pairs


def test_the_choice_of_columns_is_reported(tmp_path):
    of_tmx = "c: TMX, en is the source, fr the target; its languages are EN, FR_ca, de, en, en-GB, en-US, fr"
    for content, note in (
        ("fr\ten\nun\tone\n", "c: column 2 (en) is the source, column 1 (fr) the target"),
        ("a\tb\n", "c: column 1 is the source, column 2 the target; line 1 is a pair, no header"),
        (TMX.format(encoding="utf-8"), of_tmx),
        ("en-US\tfr-FR\ten_GB\na\tb\tc\n", "c: column 1 (en-US) is the source, column 2 (fr-FR) the target"),
    ):
        found = text(tmp_path, content)
        list(found)
        assert found.note.endswith(note)


def test_columns_without_a_header_have_the_languages_of_the_name(tmp_path):
    for name, wanted, pair in (
        ("c.en-fr.tsv", ("en", "fr"), ("a", "b")),
        ("c.en-fr.tsv", ("French", "en-GB"), ("b", "a")),
        ("c.fr-en.tsv.gz", ("en", "fr"), ("b", "a")),
        ("c.de-fr.tsv", ("fr", "en"), ("a", "b")),
        ("c.en-en.tsv", ("en", "en"), ("a", "b")),
    ):
        (tmp_path / name).write_text("a\tb\n")
        assert list(ParallelText(tmp_path / name, None, wanted)) == [pair], (name, wanted)


@pytest.mark.parametrize(
    ("content", "columns", "error", "message"),
    [
        ("a\tb\tc\n", "", UsageError, "3 columns, and their names \\(a, b, c\\) do not tell en and fr; choose two"),
        ("a\tb\n", "1,5", UsageError, "columns: .*c has no column 5; it has 2 columns: a, b"),
        ("a\tb\n", "1,x", UsageError, "columns: .*c has no column x"),
        ("en\tfr\na\tb\n", "en,1", UsageError, "columns: en,1 is only column 1 of .*c; give two"),
        ("\nonly\n", "", UsageError, "c: one text is given; give its translation too: SRC TGT, or one TMX or TSV"),
        ("a\tb\nc\n", "", InputError, "c: line 2: 1 column, but line 1 has 2"),
        ("a\tb\nc\td\te\n", "", InputError, "c: line 2: 3 columns, but line 1 has 2"),
        (b"a\tb\nc\t\xe9\n", "", InputError, "c: line 2: not UTF-8"),
    ],
)
def test_what_is_unclear(tmp_path, content, columns, error, message):
    with pytest.raises(error, match=message):
        list(text(tmp_path, content, columns))


@pytest.mark.parametrize(
    ("header", "columns", "languages"),
    [
        ("pt-PT\tFrench", "", ("pt-PT", "French")),
        ("id\ten\tfr", "fr, en", ("fr", "en")),
        ("en\tEnglish", "", ("", "")),  # one language
        ("en\tcible", "", ("", "")),
    ],
)
def test_languages_that_name_the_columns(tmp_path, header, columns, languages):
    assert languages_of_columns(text(tmp_path, header).source, columns) == languages


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "iso-8859-1", "windows-1252"])
def test_tmx(tmp_path, encoding):
    found = text(tmp_path, TMX.format(encoding=encoding.removesuffix("-sig")).encode(encoding), "1,2")
    assert list(found) == PAIRS
    assert (found.skipped, found.note.rpartition("; ")[2]) == (1, "columns has no effect")


@pytest.mark.parametrize("start", ["\n", "\ufeff \r\n\n", "<?foo bar?>", "\n<?foo\n?>\n<?a?> ", "<!--a\n-->"])
def test_what_may_come_before_tmx(tmp_path, start):
    path = text(tmp_path, start + TMX.partition("?>\n")[2].replace("<!DOCTYPE tmx", "<!DOCTYPE\ntmx")).source
    assert languages_of_columns(path, "") == ("", "")
    os.mkfifo(tmp_path / "pipe")
    threading.Thread(target=(tmp_path / "pipe").write_bytes, args=(path.read_bytes(),), daemon=True).start()
    assert list(ParallelText(tmp_path / "pipe", None, ("en", "fr"))) == PAIRS


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (TMX[:-60], r"line 9: not valid XML: (no element found|unclosed token)"),
        (TMX.replace("</hi></hi>", "</hi>"), "line 6: not valid XML: mismatched tag"),
        (TMX.replace("&amp;", "&nbsp;"), "line 6: the entity &nbsp; is not defined"),
        ('<?xml version="1.0"?>\n<!DOCTYPE tmx [<!ENTITY a "x">]><tmx>&a;</tmx>', "line 2: a document type with decl"),
        ('<?xml version="1.0" encoding="UPF-8"?>\n<tmx></tmx>', "its encoding is unknown; convert the file to UTF-8"),
        ('<?xml version="1.0" encoding="Shift_JIS"?>\n<tmx></tmx>', "its encoding is unknown"),
        ('<!DOCTYPE tmx [<!ENTITY % a SYSTEM "file:///etc/passwd">%a;]><tmx></tmx>', "line 1: a document type"),
        ("<tmx>" + "<a>" * 1000, "line 1: nested too deeply"),
        ("<tmx><body><tu " + "a" * 6_000_000, "line 1: a unit of more than 4,194,304 bytes"),
        ("<tmx><tu><tuv lang='en'><seg>" + "a\n" * 3_000_000, r"line \d+: a unit of more than 4,194,304 bytes"),
        ("<?xml version='1.0'?><html></html>", "line 1: the XML is <html>, not <tmx>"),
        (TMX.replace('xml:lang="fr"', 'xml:lang="es"').replace("FR_ca", "pt"), "no unit has both en and fr; its lang"),
        ("<tmx><tu><tuv><seg>a</seg></tuv></tu></tmx>", "no unit has both en and fr; its languages are not named;"),
    ],
)
def test_tmx_that_is_refused(tmp_path, content, message):
    with pytest.raises(InputError, match=rf"c: {message}"):
        list(text(tmp_path, content.replace("{encoding}", "utf-8")))


def test_a_million_blanks_take_no_longer_than_a_million_letters():
    blanks = " " * 1_000_000
    assert one_line(f"a{blanks}b{blanks}\n{blanks}c") == f"a{blanks}b c"


def tmx(folder, *units):
    """A file with a unit for each mapping from languages to the XML of a segment."""
    path = folder / "memory-fr.tmx"
    pairs = [unit.items() if isinstance(unit, dict) else unit for unit in units]
    texts = ["".join(f'<tuv xml:lang="{code}"><seg>{text}</seg></tuv>' for code, text in unit) for unit in pairs]
    path.write_text(f"<tmx><body>{''.join(f'<tu>{one}</tu>' for one in texts)}</body></tmx>")
    return path


REGIONS = {code: code for code in ("en-US", "EN_gb", "pt-PT", "pt-BR", "zh-TW", "zh-CN", "sr-Latn-RS", "sr-Cyrl", "fr")}


@pytest.mark.parametrize(
    ("languages", "pair"),
    [
        (("en-US", "en-GB"), ("en-US", "EN_gb")),
        (("en-GB", "en"), ("EN_gb", "en-US")),
        (("en", "EN-us"), ("EN_gb", "en-US")),
        (("fr", "pt_br"), ("fr", "pt-BR")),
        (("pt", "zh-CN"), ("pt-PT", "zh-CN")),
        (("zh-TW", "zh-Hans"), ("zh-TW", "zh-CN")),
        (("zh-Hant", "zh"), ("zh-TW", "zh-CN")),
        (("sr-Cyrl", "sr-Latn"), ("sr-Cyrl", "sr-Latn-RS")),
        (("fr-CA", "Chinese"), ("fr", "zh-TW")),  # fr names no region
    ],
)
def test_regions_and_scripts(tmp_path, languages, pair):
    assert list(ParallelText(tmx(tmp_path, REGIONS, REGIONS), None, languages)) == [pair, pair]
    table = tmp_path / "c.tsv"
    table.write_text("\t".join(REGIONS) + "\n" + "\t".join(REGIONS) + "\n")
    assert list(ParallelText(table, None, languages)) == [pair]


@pytest.mark.parametrize(
    "languages", [("fr", "en-AU"), ("pt-AO", "fr"), ("zh-HK", "fr"), ("fr", "fr"), ("fr-FR", "fr-CA")]
)
def test_another_region_is_never_taken(tmp_path, languages):
    with pytest.raises(InputError, match=f"no unit has both {' and '.join(languages)}; its languages are EN_gb, en-US"):
        list(ParallelText(tmx(tmp_path, REGIONS), None, languages))


def test_a_header_with_another_region_is_no_pair(tmp_path):
    path = tmp_path / "c.tsv"
    path.write_text("en\tzh-TW\nOne\t臺灣\n")
    with pytest.raises(UsageError, match=r"2 columns, and their names \(.*\) do not tell en and zh-CN"):
        list(ParallelText(path, None, ("en", "zh-CN")))


def test_the_region_of_the_first_unit_is_kept(tmp_path):
    units = [{"zh-CN": "1", "fr": "a"}, {"zh-TW": "2", "zh-CN": "3", "fr": "b"}, {"zh-TW": "4", "fr": "c"}]
    units += [{"zh-TW": "5", "zh": "6", "fr": "d"}, [("fr", " "), ("fr", "e"), ("zh-CN", "7"), ("zh-CN", "8")]]
    found = ParallelText(tmx(tmp_path, *units), None, ("fr", "zh"))
    assert list(found) == [("a", "1"), ("b", "3"), ("c", "4"), ("d", "6"), ("e", "7")]
    assert found.note.endswith("its languages are fr, zh, zh-CN, zh-TW")


_BREAKS = r"&lt;BR/&gt; \n \t lbr {\line} &lt;/p&gt;&lt;p&#32;class='a'&gt; &amp;nbsp; [tab/] ^p"
_ELEMENTS = "ph type='x-LineBreak',bpt type='lb',hi type='x-LineBreak',x ctype='lb',lb,br,ph type='tab',x id='1',ph,ut"


@pytest.mark.parametrize(
    ("segment", "line"),
    [
        *((f"one.<{code} x='1'>&lt;br/&gt;</{code}>Two", "one. Two") for code in ("bpt", "ept", "ph", "it", "ut")),
        *((f"one<ph>{text}</ph>two", "one two") for text in (*_BREAKS.split(" "), "\n")),
        *((f"one<bpt>{text}</bpt>two", "one two") for text in (*_BREAKS.split(" "), "\n")),
        *((f"one<{element}/>two", "one two") for element in (*_ELEMENTS.split(","), "it pos='begin'")),
        ("one<ph><sub>&lt;br/&gt;</sub></ph>two", "one two"),
        ("one &lt;br/&gt;two", "one two"),
        ("one <ph>&lt;br/&gt;</ph> , two<ph/>.", "one , two."),
        ("un<bpt i='1'>&lt;b&gt;</bpt>believ<ept i='1'>&lt;/b&gt;</ept>able", "unbelievable"),
        ("<g id='1'>mid</g>night", "midnight"),
        ("un<ph>&lt;b&gt;</ph>believ<ph>&lt;/b&gt;</ph>able", "unbelievable"),
        ("a <ph/> b <bpt>x</bpt> c<ph/><ph/>d", "a b c d"),
        ("<ph/>Press <x/>, (<ph/>e<ph/>) 3.<ph/>5 l'<ph/>eau<ph/>", "Press , (e) 3.5 l'eau"),
        ("Naïve e\u0301<ph/>e. (a)<ph/>b", "Naïve e\u0301 e. (a) b"),
        ("关闭<x/>设备。<ph/>等待", "关闭设备。等待"),
        ("关闭<ph>&lt;br/&gt;</ph>设备", "关闭 设备"),
    ],
)
def test_codes_of_a_segment(tmp_path, segment, line):
    assert list(ParallelText(tmx(tmp_path, {"en": segment, "fr": "x"}), None, ("en", "fr"))) == [(line, "x")]


def test_a_segment_is_read_once_however_deep_it_is(tmp_path, monkeypatch):
    read = []
    monkeypatch.setattr(parallel, "one_line", lambda text: read.append(text) or "")
    deep = '<tuv xml:lang="en">' * 50 + "<seg>" * 50 + "</seg>" * 50 + "</tuv>" * 50
    (tmp_path / "deep.tmx").write_text(f"<tmx><tu>{deep}</tu></tmx>")
    with pytest.raises(InputError, match="no unit has both"):
        list(ParallelText(tmp_path / "deep.tmx", None, ("en", "fr")))
    assert len(read) <= 1


def test_a_comment_may_come_first_and_line_breaks_of_a_segment_count(tmp_path):
    unit = "<tu><tuv lang='en'><seg>a{}b</seg></tuv><tuv lang='fr'><seg>c</seg></tuv></tu>"
    tmx = "<!-- made by hand -->\n<tmx><body>" + unit + "</body></tmx>"
    assert list(text(tmp_path, tmx.format("<ph type='lb'/>"))) == [("a b", "c")]
    with pytest.raises(InputError, match="a unit of more than 4,194,304 bytes"):
        list(text(tmp_path, tmx.format("<ph type='lb'/>" * (LONGEST_LINE + 1))))


def test_a_long_tmx_takes_no_more_memory(tmp_path):
    def units():
        yield "<tmx><body>"
        for i in range(6_000):
            long = f"a house {i} " * 30
            yield f"<tu><tuv lang='en'><seg>{long}</seg></tuv><tuv lang='fr'><seg>maison {i}</seg></tuv></tu>\n"
        yield "</body></tmx>"

    path = tmp_path / "long.tmx"
    path.write_text("".join(units()))
    tracemalloc.start()
    assert sum(1 for _ in ParallelText(path, None, ("en", "fr"))) == 6_000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < LONGEST_LINE < 2 * path.stat().st_size
