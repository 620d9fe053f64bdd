"""Bytes to text, whatever their charset is said to be; the text can be stored anywhere."""

import codecs
import re
from functools import lru_cache

_WIDER = {
    # Mail says the narrow name and means the wide one.
    "iso8859-1": "cp1252",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "euc_kr": "cp949",
    "shift_jis": "cp932",
    "iso8859-9": "cp1254",
    "iso8859-8": "cp1255",
    "tis-620": "cp874",
}
_NOT_FOR_TEXT = frozenset(
    # No charsets of mail, and some of them take time that grows with the square of the length.
    {"idna", "punycode", "unicode_escape", "raw_unicode_escape", "undefined", "mbcs", "oem"}
)
_OTHER_NAMES = {
    "ks_c_5601-1987": "cp949",
    "x-gbk": "gb18030",
    "x-sjis": "cp932",
    "x-mac-roman": "mac_roman",
    "windows-31j": "cp932",
    "iso-8859-8-i": "cp1255",
    "x-user-defined": "latin-1",
    "utf8mb4": "utf-8",
}
_LIKE_ASCII = frozenset({None, "ascii", "utf-8", "cp1252", "iso8859-2", "iso8859-15", "koi8-r"})
_FEW = 100
_CONTROLS = dict.fromkeys((*range(9), *range(14, 32), 0x7F, 0xFEFF)) | {
    0x0B: "\n",
    0x0C: "\n",
    0x85: "\n",
    0x2028: "\n",
    0x2029: "\n",
}
_UNCLEAN = re.compile("[\x00-\x08\x0b-\x1f\x7f\x85\u2028\u2029\ufeff\ud800-\udfff]")
_HALVES = re.compile("[\ud800-\udfff]")


@lru_cache(maxsize=512)
def codec_of(charset: str) -> str | None:
    """Give Python's name for a charset, or None if nobody knows it."""
    word = charset.strip(" \t\"'<>").lower()
    if not word or len(word) > _FEW or not word.isascii():
        return None
    try:
        name = codecs.lookup(_OTHER_NAMES.get(word, word)).name
    except (LookupError, ValueError):  # ValueError: a NUL in its name
        return None
    return None if name in _NOT_FOR_TEXT else _WIDER.get(name, name)


def decoded(octets: bytes, charset: str = "") -> str:
    r"""Decode by what is declared, else as UTF-8, else as what old mail mostly was.

    >>> decoded(b"caf\xe9", "x-nobody-knows"), decoded("café".encode(), "us-ascii")
    ('café', 'café')
    """
    codec = codec_of(charset)
    if codec in _LIKE_ASCII and octets.isascii():
        return octets.decode("ascii")
    for name in (codec, "utf-8"):
        text = None if name is None else _strictly(octets, name)
        if text is not None:
            return text
    if codec is not None and codec.startswith("utf"):
        text = octets.decode(codec, "replace")
        if text.count("\N{REPLACEMENT CHARACTER}") * _FEW <= len(text) + _FEW:
            return text  # a few broken letters, or a last one that was cut off
    return _as_windows_did(octets)


def _strictly(octets: bytes, codec: str) -> str | None:
    try:
        return octets.decode(codec)
    except (LookupError, ValueError):  # LookupError: a codec that is not for text, such as rot13
        return None


def _as_windows_did(octets: bytes) -> str:
    try:
        return octets.decode("cp1252")
    except UnicodeDecodeError:
        return octets.decode("latin-1")


def clean(text: str) -> str:
    r"""Give a text with one kind of line end, and nothing that no store or terminal takes.

    >>> clean("a\r\nb\rc\0\ud800")
    'a\nb\nc�'
    """
    if _UNCLEAN.search(text) is None:
        return text
    text = text.replace("\r\n", "\n").replace("\r", "\n").translate(_CONTROLS)
    return _HALVES.sub("\N{REPLACEMENT CHARACTER}", text)
