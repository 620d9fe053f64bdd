"""Chunks: a text in parts that a model can take in at once, each with a little of the one before.

A chunk is text[offset : offset + len(chunk.text)] to the letter, so it can be cited. Nothing but
white space lies outside of all chunks, and a text has chunks unless it is nothing but white space.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from headway.systems.consensus.text.sentences import Border, Piece, cut, pieces_of
from headway.systems.consensus.text.tokens import Tokenizer

_LETTERS_TO_A_TOKEN = 8
"""More than any language has on average: a longer text is not worth counting as a whole."""
_SMALLEST_PIECE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A part of a text, and where it begins."""

    index: int
    offset: int
    text: str
    tokens: int


def chunked(text: str, tokenizer: Tokenizer, *, size: int, overlap: int = 0) -> list[Chunk]:
    """Part a text into chunks of at most `size` tokens, cut at the best places there are.

    Neighbours have up to `overlap` tokens in common, which is at most half of the size. A single
    character that has more tokens than that is a chunk all the same.
    """
    if not 0 <= 2 * overlap <= size or size < 1:
        raise ValueError(f"size={size}, overlap={overlap}: use an overlap of at most half the size")
    start, end = _without_space(text, 0, len(text))
    if start == end:
        return []
    if end - start <= size * _LETTERS_TO_A_TOKEN:
        whole = text[start:end]
        (tokens,) = tokenizer.count([whole])
        if tokens <= size:
            return [Chunk(index=0, offset=start, text=whole, tokens=tokens)]
    # A piece must fit into the overlap, or neighbours would have nothing in common.
    limit = min(size, max(overlap, _SMALLEST_PIECE))
    pieces, counts = _small_pieces(text, (start, end), tokenizer, limit)
    spans = _spans(text, pieces, _packed(pieces, counts, size, overlap))
    texts = [text[first:last] for first, last in spans]
    return [
        Chunk(index=index, offset=offset, text=part, tokens=tokens)
        for index, ((offset, _), part, tokens) in enumerate(
            zip(spans, texts, tokenizer.count(texts), strict=True)
        )
    ]


def _spans(
    text: str, pieces: Sequence[Piece], packed: Sequence[tuple[int, int]]
) -> list[tuple[int, int]]:
    spans = [
        _without_space(text, pieces[first].start, pieces[last - 1].end) for first, last in packed
    ]
    return [span for span in spans if span[0] < span[1]]


def _small_pieces(
    text: str, within: tuple[int, int], tokenizer: Tokenizer, limit: int
) -> tuple[list[Piece], list[int]]:
    """Part a text into pieces of at most `limit` tokens: sentences, or parts of them."""
    pieces = list(pieces_of(text, *within, longest=limit * _LETTERS_TO_A_TOKEN))
    counts = tokenizer.count([text[each.start : each.end] for each in pieces])
    while any(map(_too_large, pieces, counts, [limit] * len(pieces))):
        finer = [
            list(cut(text, piece, max(2, -(-count // limit))))
            if _too_large(piece, count, limit)
            else [piece]
            for piece, count in zip(pieces, counts, strict=True)
        ]
        new = [each for parts in finer if len(parts) > 1 for each in parts]
        fresh = iter(tokenizer.count([text[each.start : each.end] for each in new]))
        counts = [
            tokens
            for parts, count in zip(finer, counts, strict=True)
            for tokens in ([count] if len(parts) == 1 else [next(fresh) for _ in parts])
        ]
        pieces = [each for parts in finer for each in parts]
    return pieces, counts


def _too_large(piece: Piece, count: int, limit: int) -> bool:
    return count > limit and piece.end - piece.start > 1


def _packed(
    pieces: Sequence[Piece], counts: Sequence[int], size: int, overlap: int
) -> list[tuple[int, int]]:
    """Put pieces together; give the first of each chunk, and the one behind its last."""
    sums = [0, *accumulate(counts)]
    packed: list[tuple[int, int]] = []
    first = done = 0
    while done < len(pieces):
        last = done + 1
        while last < len(pieces) and sums[last + 1] - sums[first] <= size:
            last += 1
        if last < len(pieces):
            last = _best_end(pieces, sums, first, done + 1, last)
        packed.append((first, last))
        done = last
        if done < len(pieces):
            # The next piece has to fit in too; and no chunk holds all of the one before it.
            common = min(overlap, size - counts[done])
            first = _overlapping(pieces, sums, range(first + 1, done), common)
    return packed


def _best_end(
    pieces: Sequence[Piece], sums: Sequence[int], first: int, least: int, most: int
) -> int:
    """Choose where a chunk ends: at the best border of its second half, the later the better."""
    half = sums[first] + (sums[most] - sums[first]) / 2
    ends = [end for end in range(least, most + 1) if sums[end] >= half]
    return max(ends, key=lambda end: (pieces[end - 1].border, end))


def _overlapping(pieces: Sequence[Piece], sums: Sequence[int], behind: range, overlap: int) -> int:
    """Choose where the next chunk begins: with a whole sentence, as far back as is allowed."""
    done = behind.stop
    near = [begin for begin in behind if sums[done] - sums[begin] <= overlap]
    whole = (begin for begin in near if pieces[begin - 1].border >= Border.SENTENCE)
    return next(whole, near[0] if near else done)


def _without_space(text: str, start: int, end: int) -> tuple[int, int]:
    part = text[start:end]
    left = part.lstrip()
    start += len(part) - len(left)
    return start, start + len(left.rstrip())
