"""Names of languages, languages in file names, and text without spaces between words."""

from pathlib import Path

import pytest

from nmtalign.errors import UsageError
from nmtalign.text import languages
from nmtalign.text.languages import has_no_spaces, is_unspaced, language_code, language_name, suffix_language


@pytest.mark.parametrize(
    ("names", "code"),
    [
        ("de DE de_DE de-DE de-AT German german deu ger", "de"),
        ("zh_CN zh-Hans cmn", "zh"),
        ("pt_BR", "pt"),
        ("tlh", "tlh"),
    ],
)
def test_all_names_of_a_language_mean_its_code(names, code):
    assert set(map(language_code, names.split())) == {code}


@pytest.mark.parametrize("name", ["", "12", "e", "en fr", "en/fr", "$", "-"])
def test_what_cannot_be_a_language_is_refused(name):
    with pytest.raises(UsageError, match="is not a language; give a code such as en, de or zh"):
        language_code(name)


@pytest.mark.parametrize(
    ("names", "language"),
    [
        ("train.en train.EN corpus.en.txt.gz europarl-v7.fr-en.en en.txt", "en"),
        ("train.fr.tok.bpe32k.xz train.fr_CA news-fr.txt", "fr"),
        ("train.de_DE train.German news_german.txt", "de"),
        ("OpenSubtitles.en-pt_br.pt_br", "pt"),
        ("train.es_ar.gz", "es"),
        ("dev.zh_CN.txt", "zh"),
        ("train.tgt", "tgt"),
        ("train.txt train.tsv train.tok train.gz train.clean train.bpe", ""),
        ("train en - my.text train-no.txt train.en-fr train.sentences", ""),
    ],
)
def test_the_language_in_a_file_name(names, language):
    assert {suffix_language(Path("some.fr") / name) for name in names.split()} == {language}


def test_both_languages_in_a_file_name():
    assert [languages.languages_in(Path(f"a.en-{code}.tsv")) for code in ("fr", "qq")] == [("en", "fr"), ("", "")]


def test_the_name_of_a_language():
    names = {"de": "German", "et": "Estonian", "lo": "Lao", "ms": "Malay", "zh": "Chinese", "xx": "xx"}
    assert {code: language_name(code) for code in names} == names


def test_languages_and_texts_without_spaces():
    assert [has_no_spaces(code) for code in ("zh", "zh_TW", "ja", "th", "lo", "km", "my")] == [True] * 7
    assert not any(map(has_no_spaces, ("en", "ko", "vi", "hi", "ar", "")))
    southeast_asian = "ฉันชอบอ่านหนังสือ ที่บ้านของฉัน", "ຂ້ອຍມັກອ່ານ", "ខ្ញុំចូលចិត្តអាន", "ကျွန်တော်စာဖတ်ရတာ"
    for text in ("我喜欢读书。", "彼女は、東京で 古い本を読んだ", *southeast_asian):
        assert is_unspaced([text])
        assert not is_unspaced([f"The sign reads {text[:5]}, which means that somebody likes to read many long books."])
    segmented = "我 喜欢 红色 的 船 。", "彼女 は 東京 で 古い 本 を 読ん だ", "ฉัน ชอบ อ่าน หนังสือ ที่ บ้าน ของ ฉัน"
    assert not any(is_unspaced([text]) for text in segmented)
    assert not any(is_unspaced([text]) for text in ("나는 책을 읽는다", "Я люблю читать", "मुझे पढ़ना पसंद है", "", "12 %"))
