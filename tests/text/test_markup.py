"""Documents with markup: what is a segment, what stays as it is, and where the marks of a text go back."""

import time

import pytest
from lxml import etree

from nmtalign.errors import InputError
from nmtalign.text.markup import MarkedText, read_markup, units_of

HTML = """<!doctype html>
<html lang=en><head><title>A page</title><style>p > b { x: "</p>" }</style>
<script>if (a<b && c) { write("<p>no</p>") }</script></head>
<body class='x > y'><!-- <p>no</p> -->
<h1> The <em>big</em>  fox &amp; boat</h1>
<ul><li>One <a href="?a=1&amp;b=2" title='it > "is"'>the <b>fox</b></a>, here<li>Two &lt;b&gt;</ul>
<p>See <code>x &lt; 1</code> or <kbd>Ctrl</kbd>.<br/>Next <img src=a.png alt="fox"> line<p translate=no>not <b>it</b>
<pre> the   fox </pre><textarea>the fox</textarea><span class="a notranslate">the</span> fox sees
<input type=text><svg><text>the</text></svg></body></html>
"""
SRT = (
    "1\r\n00:00:01,000 --> 00:00:02,000 X1:5\r\n{\\an8}The <i>fox\r\nsees</i> a\r\n\r\n"
    "2\r\n00:00:02,000 --> 00:00:03,000\r\nboat.\r\n\r\n3\r\n00:00:03,000 --> 00:00:04,000\r\n- Who?\r\n- <b>Me</b>\r\n"
)
VTT = """WEBVTT - the title

NOTE the fox

STYLE
::cue { color: red }

intro
00:01.000 --> 00:02.000 align:left
<v Bob>The &amp; <c.red>fox</c> <00:01.500>sees &lt;3.

00:02.000 --> 00:03.000

00:03.000 --> 00:04.000
a boat"""


def segments(text, markup):
    return [part for part in read_markup(text.encode(), markup) if isinstance(part, MarkedText)]


def texts(text, markup):
    return [segment.text for segment in segments(text, markup)]


def unchanged(text, markup):
    """The document with each text put back as its own translation."""
    parts = read_markup(text.encode(), markup)
    return "".join(part.put_back(part.text, part.spans()) if isinstance(part, MarkedText) else part for part in parts)


@pytest.mark.parametrize(
    ("text", "markup"),
    [
        (HTML.replace("&lt;b&gt;", "").replace("  fox", " fox").replace("sees\n", "sees "), "html"),
        (SRT, "srt"),
        (VTT, "vtt"),
        ("", "html"),
        ("", "srt"),
        ("<p></p><br>", "html"),
        ("\ufeff<p>the fox</p>", "html"),
        ("\ufeffthe fox", "html"),
        ("\r\n<b>the fox</b>\r\n", "html"),
        ("no markup &amp; 5 < 6 > 4", "html"),
        ("<p>the<fox", "html"),
        ("<p>the fox</", "html"),
        ("<!-- the fox", "html"),
        ("<![CDATA[ the ]]> fox", "html"),
        ("<p>שלום <b>עולם</b> 5</p>", "html"),
        ("<p>猫が<b>好き</b>です。</p>", "html"),
        ("1\n00:00:01,000 --> 00:00:02,000\n", "srt"),
        ("00:00:01,000 --> 00:00:02,000\nThe fox ♪ sees\n", "srt"),
        ("00:00:01,000 --> 00:00:02,000\n<i>\n♪\n</i>\n♪\n", "vtt"),
        ("1\n00:00:01,000 --> 00:00:02,000\nThe fox\n \nsees\n\n\n2\n00:00:02,000 --> 00:00:03,000\n\nboat\n", "srt"),
    ],
)
def test_a_document_that_is_its_own_translation_stays_the_same(text, markup):
    found = unchanged(text, markup)
    assert found.replace("&gt;", ">") if "5 <" in text else found == text


def test_blocks_of_html_are_segments_and_other_tags_are_marks():
    found = texts(HTML, "html")
    assert found == ["A page", "The big fox & boat", "One the fox, here", "Two", "See or.", "Next line", "fox sees"]
    marks = segments(HTML, "html")[2].marks
    link = """<a href="?a=1&amp;b=2" title='it > "is"'>"""
    assert [(mark.opening, mark.parent) for mark in marks] == [(link, -1), ("<b>", 0)]


def test_two_codes_of_xliff_with_one_name_are_around_their_words():
    def mark(text):
        (segment,) = [part for part in read_markup(f"<p>see {text} now</p>".encode(), "html") if type(part) is not str]
        return segment.text, list(segment.spans())

    assert mark('<bx id="1"/>the fox<ex id="1"/>') == mark("<b>the fox</b>")
    assert mark('<bx id="1"/>the fox<ex id="2"/>') != mark("<b>the fox</b>")


def test_a_sentence_over_several_cues_is_one_text():
    assert texts(SRT, "srt") == ["The fox sees a boat.", "Who?", "Me"]
    assert texts(VTT, "vtt") == ["The & fox sees <3.", "a boat"]
    long = "".join(f"{n}\n00:00:{n:02},000 --> 00:00:{n:02},900\nthe fox\n\n" for n in range(40))
    assert len(texts(long, "srt")) > 1


def test_a_cue_may_contain_an_arrow():
    cues = "1\n00:00:01,000 --> 00:00:02,000\nFox --> boat\nsees 2\n2\n00:00:02,000-->00:00:03,000\nit\n"
    assert texts(cues, "srt") == ["Fox --> boat sees 2 it"]


def test_a_cue_of_srt_may_have_paragraphs():
    cues = "1\n00:00:01,000 --> 00:00:02,000\nthe fox\n\nsees\na boat.\n\n2\n00:00:02,000 --> 00:00:03,000\nfox\n\n"
    assert texts(cues, "srt") == ["the fox", "sees a boat.", "fox"]
    assert texts(cues.replace(",", "."), "vtt") == ["the fox fox"]  # whose cues end with a blank line
    assert texts(cues.replace(",", ".").replace("\n\n", "\n \n"), "vtt") == ["the fox", "sees a boat.", "fox"]
    cues = "1\n00:00:01.000 --> 00:00:02.000\n \nthe<00:00:01.500><c> fox</c>\n \n\n2\n00:00:02.000 --> 00:00:03.000\n"
    for markup in ("srt", "vtt"):  # such as automatic captions
        assert texts(cues, markup) == ["the fox"]
        assert unchanged(cues, markup).replace("<c>", "<c> ").replace("> <", "><") == cues


def test_voices_of_a_cue_are_texts_of_their_own():
    assert texts("00:01.000 --> 00:02.000\n<v Ann>Fox\n<v.b Bob>Boat\n<i>sees</i>\n", "vtt") == ["Fox", "Boat sees"]


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ('<html class=a lang="en-GB" xml:lang=\'en\' id="lang">', '<html class=a lang="fr" xml:lang=\'fr\' id="lang">'),
        ("<HTML LANG=en><p lang='de'>the fox</p>", "<HTML LANG=fr><p lang='de'>the fox</p>"),
        ("the <i lang = en >fox</i>", "the <i lang = fr >fox</i>"),
        ("<a hreflang=en title='lang=\"en\"' lang>fox</a>", "<a hreflang=en title='lang=\"en\"' lang>fox</a>"),
        ("<p lang=en translate=no>fox</p>", "<p lang=en translate=no>fox</p>"),
        ("<code lang=en>x</code>", "<code lang=en>x</code>"),
    ],
)
def test_html_states_the_language_of_its_translation(page, expected):
    parts = read_markup(page.encode(), "html", ("en", "fr"))
    found = (part if isinstance(part, str) else part.put_back(part.text, part.spans()) for part in parts)
    assert "".join(found) == expected
    assert unchanged(page, "html") == page


def test_what_is_beside_a_word_and_what_is_inside():
    assert texts("<p>Donau&shy;dampf<wbr>schiff<img>fahrt 🔬<b>here</b>", "html") == ["Donaudampfschiff fahrt 🔬here"]
    for text in ("<p><i>🔬</i><b>here</b>", "<h1>Fox<a class=headerlink>¶</a></h1>", "<p>Fox.<sup>1</sup> Boat"):
        assert unchanged(text, "html") == text


def test_cues_of_a_translation_get_its_words_in_order():
    cues = "1\n00:00:01,000 --> 00:00:02,000\nthe\n\n2\n00:00:02,000 --> 00:00:03,000\nfox\n"
    (segment, *_) = segments(cues, "srt")
    assert segment.put_back("le gros renard", [(2, 2)]) == "le gros\n\n2\n00:00:02,000 --> 00:00:03,000\nrenard"
    assert segment.put_back("", [(0, 0)]) == "\n\n2\n00:00:02,000 --> 00:00:03,000\n"
    (segment, *_) = segments(cues.replace("the", "<b>the").replace("fox", "fox</b>"), "srt")
    assert not any(mark.closing for mark in segment.marks)  # a tag that encloses cues could move them


@pytest.mark.parametrize("line", ["Visit https://a.org\na fox", "the fox %s\n%s sees", "a <00:01.500>\nfox {x} \na"])
def test_blanks_around_marks_beside_the_end_of_a_line_stay(line):
    cue = f"1\n00:00:01.000 --> 00:00:02.000\n{line}\n"
    (segment,) = segments(cue, "vtt")
    bare = segment.without_placeholders()
    assert bare.put_back(bare.text, bare.spans()) == line


def test_lines_of_a_cue_are_never_blank():
    (segment,) = segments("00:01.000 --> 00:02.000\nthe fox\nsees a boat\n", "vtt")
    assert segment.put_back("le renard voit", [(2, 2)]) == "le renard\nvoit"
    assert segment.put_back("voit", [(0, 0)]) == segment.put_back("voit", [(1, 1)]) == "voit"


XLIFF = """<xliff xmlns="urn:oasis:names:tc:xliff:document:1.2" version="1.2"><file source-language="en"><body>
<trans-unit id="1">
  <source>The <g id="1">big</g> <bpt id="2">&lt;b></bpt>fox<ept id="2">&lt;/b></ept></source></trans-unit>
<trans-unit id="2"><source>a boat</source><target>un bateau</target></trans-unit>
<trans-unit id="3"><source>a boat</source><target state="new"/>
  <alt-trans><source>x</source><target/></alt-trans></trans-unit>
<trans-unit id="4" translate="no"><source>a boat</source></trans-unit>
<trans-unit id="5" xml:space="preserve"><source>one
  two</source></trans-unit>
<trans-unit id="10"><source xml:space="preserve">the&#13;
fox&#13;</source></trans-unit>
<trans-unit id="6"><source>One. Two.</source>
  <seg-source><mrk mtype="seg" mid="0">One.</mrk> <mrk mtype="seg" mid="1">Two.</mrk></seg-source></trans-unit>
<trans-unit id="8"><source>One.</source><seg-source><mrk mtype="seg" mid="0">One.</mrk></seg-source>
  <target><mrk mtype="seg" mid="0"/></target></trans-unit>
<trans-unit id="9"><source>a <?a x > y?><x-1:ph xmlns:x-1="y" id="1">red</x-1:ph> fox</source></trans-unit>
<trans-unit id="7"><source><![CDATA[<p>the <b>fox</b> & boat</p>]]></source></trans-unit>
</body></file></xliff>"""


def targets(text, markup="xliff"):
    root = etree.fromstring(unchanged(text, markup).encode())
    return root, [etree.tostring(one, encoding="unicode", with_tail=False) for one in root.iter("{*}target")]


def test_each_unit_of_xliff_gets_a_target_unless_it_has_one():
    words = ["The big fox", "a boat", "one", "two", "the", "fox", "One.", "Two.", "One.", "a fox", "the fox & boat"]
    assert texts(XLIFF, "xliff") == words
    _, found = targets(XLIFF)
    assert 'state="translated"' in found[0]
    assert '<g id="1">big</g> <bpt id="2">&lt;b&gt;</bpt>fox<ept id="2">&lt;/b&gt;</ept></target>' in found[0]
    assert found[1].endswith(">un bateau</target>")
    assert "un bateau" not in found[2]
    assert found[2].count("state=") == 1
    assert ">one\n  two<" in found[4]
    assert ">the&#13;\nfox&#13;<" in found.pop(5)
    assert '<mrk mtype="seg" mid="0">One.</mrk> <mrk mtype="seg" mid="1">Two.</mrk>' in found[5]
    assert '<mrk mtype="seg" mid="0">One.</mrk></target>' in found[6]
    assert '>a <?a x > y?><x-1:ph xmlns:x-1="y" id="1">red</x-1:ph> fox<' in found[7]
    assert "&lt;p&gt;the &lt;b&gt;fox&lt;/b&gt; &amp; boat&lt;/p&gt;" in found[8]


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ('the <sm id="1" translate="no"/>red <ph id="2"/>fox<em startRef="1"/> sees', "the sees"),
        ('the <sm id="1" translate="no"/>red <pc id="2">fox<em startRef="1"/> sees</pc>', "the sees"),
        ('the <sm id="1" type="term"/>red<em startRef="1"/> fox <sm id="2" translate="no"/>sees', "the red fox"),
    ],
)
def test_an_annotation_of_xliff_2_may_say_what_is_not_translated(source, words):
    text = f'<xliff version="2.0" srcLang="en"><unit><segment><source>{source}</source></segment></unit></xliff>'
    assert texts(text, "xliff") == [words]
    assert targets(text)[1] == [f"<target>{source}</target>"]


def test_xliff_2_has_the_state_at_the_segment():
    text = (
        '<x:xliff xmlns:x="urn:oasis:names:tc:xliff:document:2.0" version="2.0" srcLang="en" trgLang="de">'
        '<x:file id="f"><x:unit id="1"><x:segment state="initial" subState="a:b">'
        '<x:source>the <x:sc id="1"/>fox<x:ec startRef="1"/>'
        "</x:source></x:segment></x:unit></x:file></x:xliff>"
    )
    root, found = targets(text)
    assert root.get("trgLang") == "de"  # it was given
    assert dict(root.find(".//{*}segment").attrib) == {"state": "translated"}
    assert found[0].endswith('>the <x:sc id="1"/>fox<x:ec startRef="1"/></x:target>')


@pytest.mark.parametrize("languages", [("de", "fr"), ("en", "de")])
def test_xliff_of_other_languages_than_those_of_the_model_is_refused(languages):
    text = XLIFF.replace('"en"', '"en-US" target-language="fr-CA"').encode()
    read_markup(text, "xliff", ("en_GB", "fr"))
    with pytest.raises(InputError, match=r"language is .*-.., and the model's is de; give another model"):
        read_markup(text, "xliff", languages)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not XML: Document is empty, line 1, column 1$"),
        (b"<xliff><file></xliff>", "not XML"),
        (b"<html/>", "not XLIFF"),
        (b'<!DOCTYPE xliff [<!ENTITY a "aaa"><!ENTITY b "&a;&a;">]><xliff><source>&b;</source></xliff>', "entities"),
        (b'<!DOCTYPE xliff [<!ENTITY a SYSTEM "/etc/passwd">]><xliff><source>&a;</source></xliff>', "entities"),
        (b"<g>" * 100_000, "not XML"),
    ],
)
def test_what_is_no_xliff_is_refused(data, message):
    with pytest.raises(InputError, match=message):
        read_markup(data, "xliff")


@pytest.mark.parametrize("start", ["", '<?xml version="1.0" encoding="UTF-8"?>\n'])
@pytest.mark.parametrize("end", ["", "\n"])
def test_xliff_keeps_its_declaration_and_its_last_line_feed(start, end):
    written = "".join(map(str, read_markup(f"{start}{XLIFF}{end}".encode(), "xliff")))
    assert (written.startswith("<?xml"), written.endswith("\n")) == (bool(start), bool(end))


def test_xliff_may_have_another_encoding():
    text = XLIFF.replace("un bateau", "à vélo")
    for encoding in ("iso-8859-1", "utf-8"):
        data = f'<?xml version="1.0" encoding="{encoding}"?>{text}'.encode(encoding)
        assert "à vélo" in "".join(part for part in read_markup(data, "xliff") if isinstance(part, str))
    declared = '<?xml version="1.0" encoding="UTF-16"?>'
    wide = f"{declared}{text}".encode()  # as files are read
    assert "à vélo" in "".join(part for part in read_markup(wide, "xliff") if isinstance(part, str))
    quoted = XLIFF.replace("the <b>fox</b>", declared)
    assert "&lt;?xml version" in unchanged(quoted, "xliff")
    assert unchanged(quoted, "xliff").count('encoding="UTF-16"') == 2  # in source and target


@pytest.mark.parametrize("markup", ["srt", "vtt"])
def test_a_document_without_times_is_no_subtitles(markup):
    with pytest.raises(InputError, match=f"not {markup}: it has no times"):
        read_markup(b"<p>The cat. <!-- 1 --></p>", markup)
    with pytest.raises(InputError, match=f"not {markup}: it has no times, such as 00:00:01.000 --> 00:00:02.000"):
        read_markup(b"1\n00:00:01:000 --> 00:00:02:000\nthe fox\n", markup)
    assert "".join(read_markup(b"", markup)) == ""
    assert "".join(read_markup(b"WEBVTT\n", markup)) == "WEBVTT\n"
    with pytest.raises(InputError, match="its lines end with CR and no LF"):
        read_markup(b"WEBVTT\r\r00:01.000 --> 00:02.000\rThe cat.\r", markup)


BROKEN = ["<b>", "</i>", "<", "<a ", '<a b="', "<!--", "<code>", "<!", "<%", "{%", "<?php", "<td translate=no>"]
BROKEN += ["x@", "x.", "https://a(", "{{", "<p>a", "%", "<i translate=no><b translate=yes>b</i>"]


@pytest.mark.parametrize("piece", BROKEN)
def test_broken_html_takes_linear_time(piece):
    began = time.process_time()
    text = piece * (100_000 // len(piece))
    assert unchanged(text, "html").replace("&lt;", "<").replace("&amp;", "&") == text
    assert time.process_time() - began < 20


XLIFF_OF_A_RUN = """<xliff version="1.2"><file source-language="en" target-language="fr"><body>
<trans-unit id="1" xml:space="preserve"><source>{}</source></trans-unit></body></file></xliff>"""


@pytest.mark.parametrize(
    ("markup", "document", "run"),
    [
        ("html", "<p>{}", f"a %{'0' * 100_000} b"),
        ("srt", "1\n00:00:01,000 --> 00:00:02,000\n{}\n", f"a{' ' * 300_000}b"),
        ("xliff", XLIFF_OF_A_RUN, f"a{' ' * 300_000}b"),
    ],
)
def test_a_run_of_one_character_takes_linear_time(markup, document, run):
    began = time.process_time()
    assert run in unchanged(document.format(run), markup)
    assert time.process_time() - began < 20


PLACEHOLDERS = ["{name}", "{0}", "{}", "{{x}}", "%s", "%1$d", "%(name)s", "%5.2f", "$VAR", "${var}", "%{x}", "%%"]
PLACEHOLDERS += ["&nbsp;", "https://a.org/b?c=d#e", "https://a.org/b_(c)", "bob.x@example.org", "jürgen@müller.de"]
PLACEHOLDERS += ["%VAR%", "%id%", "%USER_NAME%", "%name%%id%", "%s%s", "%ld%s", "%d%%", "%s%(name)s", "%s%s%5.2f%%"]


@pytest.mark.parametrize("text", PLACEHOLDERS)
def test_a_placeholder_is_found_and_taken_out(text):
    (segment,) = segments(f"the {text.replace('&', '&amp;')}, fox", "html")
    assert not segment.keeps_placeholders("le renard")
    assert not segment.keeps_placeholders(f"le {text} {text}")
    assert segment.keeps_placeholders(f"{text} le renard")
    bare = segment.without_placeholders()
    assert bare.text == "the, fox"
    assert bare.put_back("le renard", [(1, 1)]) == f"le {text.replace('&', '&amp;')} renard"


@pytest.mark.parametrize(
    ("text", "bare"),
    [
        ("$nameを入力してください", "を入力してください"),
        ("请联系x@a.org获取更多信息", "请联系 获取更多信息"),
        ("参照：https://a.org/。犬です。", "参照：。犬です。"),
        ("详见（https://a.org/b）。谢谢", "详见（）。谢谢"),
        ("the “https://a.org” fox", "the “” fox"),
        ("the %dx%d fox", "the x fox"),
        ("%name%s fox", "s fox"),
    ],
)
def test_a_placeholder_ends_before_words_without_spaces_and_quotation_marks(text, bare):
    (segment,) = segments(text, "html")
    assert segment.without_placeholders().text == bare


def test_words_are_no_placeholders():
    (segment,) = segments("100% sure, 5% of 20%, 5%d'accord; A&B, $5 {not one} a@b", "html")
    assert segment.keeps_placeholders("")


def test_only_placeholders_are_not_translated():
    assert texts("<p>{a}: %s <b>%d</b></p><p>42</p>", "html") == []
    pages = "<p>%s<b>%s</b></p>", "<p>$V5%s</p>", "<p>%sa@b.org5%s</p>", "<i>a@b.org</i><i>https://a.org</i>"
    assert [texts(page, "html") for page in pages] == [[], [], [], []]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("<ul><li translate=no>a fox<li>a boat</ul>the fox", ["a boat", "the fox"]),
        ("<nav><a href=a>the fox</a><a href=b>A boat</a><b>the</b></nav>", ["the fox", "A boat", "the"]),
        ("<p><a href=a>the</a><a href=b></a> boat <a>狐</a><a href=c>狸</a>", ["the boat 狐狸"]),
        ("<p><a href=a>बारे में</a><a href=b>सेवा</a>", ["बारे में", "सेवा"]),
        (
            "<body translate=no>fox <p translate=yes>a <b translate=no>x <i translate=yes>boat</i> x</b> in</p> x <br>"
            "<!-- <p translate=yes>fox --><p translate='YES'>the fox<p>fox</body>",
            ["a", "boat", "in", "the fox"],
        ),
        ("<ul><li translate=no>a <ol><li>fox<li>fox</ol> fox</li><li>a boat</ul>", ["a boat"]),
        ("<dl><dt translate=no>a fox<dd>a boat<dt translate=no>a fox</dl>the fox", ["a boat", "the fox"]),
        ("<table><tr><td translate=no>a fox<td>a boat<tr><th translate=no>a fox</table>the fox", ["a boat", "the fox"]),
        ("<table><tr translate=no><td>a fox<td>a fox<tr><td>a boat</table>", ["a boat"]),
        ("<table><td translate=no><table><td>a fox</table>a fox</td><td>a boat</table>", ["a boat"]),
        ("<table><thead translate=no><tr><td>a fox<tr><td>a fox</thead><tr><td>a boat</table>", ["a boat"]),
        ("<select><option translate=no>a fox<option>a boat</select>the fox", ["a boat", "the fox"]),
        ("<p translate=no>a fox<br>a fox<p>a boat<p translate=no>a fox</div>the fox", ["a boat", "the fox"]),
        ("<p>a <code>fox<br>a fox</code> boat<p>the <code>fox<p>fox", ["a boat", "the", "fox"]),
        ("a boat <svg><title>a fox</title><text>a fox</text></svg>", ["a boat"]),
        ("<ruby>a boat<rp>(<rt>fox<rp>)</ruby> sees", ["a boat sees"]),
        ("a boat<listing>a <b>fox</b></listing>the fox<plaintext>fox <p>fox</p>", ["a boat", "the fox"]),
    ],
)
def test_an_element_that_is_not_translated_may_have_no_end_tag(text, found):
    assert texts(text, "html") == found
    assert unchanged(text, "html") == text


def test_templates_stay_as_they_are():
    text = "<p>The <?php if ($a->b > 5): ?> fox <?= $c ?> <%= a > b %> sees {% if a %}a boat{% endif %}"
    assert texts(text, "html") == ["The fox sees {% if a %}a boat{% endif %}"]
    assert unchanged(text, "html") == text
    (segment,) = segments(text, "html")
    assert not segment.keeps_placeholders("le renard")
    assert segment.without_placeholders().text == "The fox sees a boat"
    text = "<p>The <% if (a<b) { %> fox <?php if ($a->b < 5): echo '<b>a</b>'; ?> sees<%-- <i>it</i> --%>"
    assert texts(text, "html") == ["The fox sees"]
    assert unchanged(text, "html") == text
    text = "<?xml:namespace prefix = o />The fox sees 5%> <%= a ?> b %>a boat?> <?php echo 5 %> 2 ?>it"
    assert texts(text, "html") == ["The fox sees 5%> a boat?> it"]


def marks(text, markup="html"):
    return [(mark.opening, mark.closing) for segment in segments(text, markup) for mark in segment.marks]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("the <a href=http://a.org/>fox</a>", [("<a href=http://a.org/>", "</a>")]),
        ("the <x title='a=b'/> fox", [("<x title='a=b'/>", "")]),
        ("the <x hidden/> fox", [("<x hidden/>", "")]),
        ('the <a href="?translate=no">fox</a>', [('<a href="?translate=no">', "</a>")]),
        ("the <i data-translate=no>fox</i>", [("<i data-translate=no>", "</i>")]),
        ("the <i title='class=notranslate'>fox</i>", [("<i title='class=notranslate'>", "</i>")]),
        ("the <i class=notranslate-x>fox</i>", [("<i class=notranslate-x>", "</i>")]),
        ("the <i class='a notranslate'>fox</i> sees", [("<i class='a notranslate'>fox</i>", "")]),
        ("<ruby>狐<rp>(</rp><rt>きつね</rt></ruby>", [("<ruby>", "</ruby>"), ("<rp>(</rp><rt>きつね</rt>", "")]),
        ("the <i TRANSLATE = 'No'>fox</i> sees", [("<i TRANSLATE = 'No'>fox</i>", "")]),
    ],
)
def test_attributes_are_read_by_the_rules_of_html(text, found):
    assert marks(text) == found


def test_a_time_may_have_no_fraction():
    assert texts("1\n00:00:01 --> 00:00:02\nthe fox\n", "srt") == ["the fox"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("l'homme d’un.", ["l'", "homme", "d’", "un", "."]),
        ("don't, 3.5!", ["don't", ",", "3.5", "!"]),
        ("猫が", ["猫", "が"]),
        ("हिन्दी में", ["हिन्दी", "में"]),
        ("{a b} {ab}", ["{", "a", "b", "}", "{ab}"]),
    ],
)
def test_units(text, words):
    assert [text[start:stop] for start, stop in units_of(text)] == words


def test_an_empty_mark_keeps_the_blanks_around_it():
    (segment,) = segments("<p>Hello {x}! the <img> fox<sup>1</sup></p>", "html")
    bare = segment.without_placeholders()
    assert bare.text == "Hello! the fox"
    assert bare.put_back("Allo! le renard", [(1, 1), (3, 3), (4, 4)]) == "Allo {x}! le <img> renard<sup>1</sup>"


@pytest.mark.parametrize(
    ("text", "translation", "place", "expected"),
    [
        ("the fox ({x})", "le renard", 2, "le renard {x}"),
        ("the fox ({x})", "le renard ()", 3, "le renard ({x})"),
        ("({x}) the fox", "le renard", 0, "{x} le renard"),
        ("{x}) the fox", ") le renard", 0, "{x}) le renard"),
        ("the {x} fox", "l'homme", 1, "l' {x} homme"),
        ("去{x}饭店", "the hotel", 1, "the {x} hotel"),
        ("去{x}饭店", "宿に", 1, "宿{x}に"),
        ("{x}饭店", "hotel", 0, "{x} hotel"),
        ("饭店{x}", "hotel", 1, "hotel {x}"),
        ("饭店{x}", "宿", 1, "宿{x}"),
    ],
)
def test_an_empty_mark_does_not_touch_a_word_from_which_a_sign_separated_it(text, translation, place, expected):
    (segment,) = segments(text, "html")
    assert segment.without_placeholders().put_back(translation, [(place, place)]) == expected


@pytest.mark.parametrize("words", [("red", "blue"), ("है", "नीला"), ("cafe\u0301", "bleu"), ("3", "4")])
def test_words_on_both_sides_of_an_empty_mark_stay_two_words(words):
    (segment,) = segments(f"a {'<img>'.join(words)}", "html")
    assert segment.text == f"a {' '.join(words)}"
    assert segment.put_back(segment.text, segment.spans()) == f"a {'<img> '.join(words)}"


@pytest.mark.parametrize("line", ['- "The fox."', "- (fox) Sees.", "♪ “The fox” ♪", "♪ The fox. ♪"])
def test_one_blank_separates_a_dash_or_a_note_from_the_text(line):
    (segment,) = segments(f"1\n00:00:01,000 --> 00:00:02,000\n{line}\n", "srt")
    places = [(0, 0), (1, 1)][: len(segment.marks)]
    assert segment.put_back("Renard", places) == line[:2] + "Renard" + " ♪" * (line[0] == "♪")
