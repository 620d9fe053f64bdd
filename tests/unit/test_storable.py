"""What no store could keep as it is, is refused where it is written, by the name of its field."""

from collections import OrderedDict
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from math import inf, nan
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.core.storable import copied
from headway.core.writes import applied
from headway.errors import UnstorableError
from headway.retrying import DEFAULT_CLASSIFIER, Verdict
from headway.testing.ports import Increment

WIDEST = 1 << 63


class Colour(Enum):
    RED = "red"


@dataclass
class Weight:
    grams: float
    label: bytes | None = None


ENDLESS: dict[str, Any] = {}
ENDLESS["x"] = [ENDLESS]


@pytest.mark.parametrize(
    ("value", "field", "what"),
    [
        (nan, "x", "nan"),
        (-inf, "x", "-inf"),
        (b"abc", "x", "bytes"),
        (bytearray(b"abc"), "x", "bytes"),
        (WIDEST, "x", "a whole number"),
        (-WIDEST - 1, "x", "a whole number"),
        (1 << 70, "x", "a whole number"),
        ("\ud800", "x", "half a character"),
        (ENDLESS, "x.x[0]", "itself"),
        (object(), "x", "object"),
        ([1, {"b.c": (2, nan)}], "x[1].b.c[1]", "nan"),
        ({"\udc00": 1}, "x.\udc00", "half a character"),
        (Weight(inf), "x.grams", "inf"),
        (Weight(1.0, b"abc"), "x.label", "bytes"),
        ([Weight(1.0), 1 << 64], "x[1]", "a whole number"),
    ],
)
def test_what_cannot_be_stored_is_refused_for_good(value: Any, field: str, what: str) -> None:
    document = {"_id": "1", "fine": 1.5, "x": value}
    with pytest.raises(UnstorableError) as caught:
        copied(document, "docs")
    assert caught.value.field == field
    assert "docs" in str(caught.value)
    assert what in str(caught.value)
    assert DEFAULT_CLASSIFIER.classify(caught.value).verdict is Verdict.PERMANENT


def test_what_is_written_as_json_without_loss_is_taken() -> None:
    document = OrderedDict(
        at=datetime(2024, 1, 1, tzinfo=UTC),
        one=UUID(int=1),
        colour=Colour.RED,
        pair=(1, 2),
        weight=Weight(1.5),
        highest=WIDEST - 1,
        lowest=-WIDEST,
        digits="9" * 40,
        real=1e300,
    )
    assert copied(document, "docs") == {
        "at": "2024-01-01T00:00:00Z",
        "one": "00000000-0000-0000-0000-000000000001",
        "colour": "red",
        "pair": [1, 2],
        "weight": {"grams": 1.5, "label": None},
        "highest": WIDEST - 1,
        "lowest": -WIDEST,
        "digits": "9" * 40,
        "real": 1e300,
    }
    with pytest.raises(TypeError, match="a document is a dict, not list"):
        copied([1], "docs")


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-WIDEST, WIDEST - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=4),
    lambda each: st.lists(each, max_size=2) | st.dictionaries(st.text("ab."), each, max_size=2),
    max_leaves=4,
)


@settings(max_examples=50)
@given(st.dictionaries(st.text("ab."), JSON, max_size=3))
def test_json_is_taken_as_it_is_and_is_a_copy(document: dict[str, Any]) -> None:
    copy = copied(document, "docs")
    assert copy == document
    assert copy is not document


@pytest.mark.parametrize(("before", "by"), [(WIDEST - 1, 1), (1.5e308, 1.5e308)])
def test_a_sum_that_is_too_large_is_refused(before: float, by: float) -> None:
    with pytest.raises(UnstorableError, match="counts/c cannot be stored: the field 'n' holds"):
        applied(Increment("counts", "c", "n", by), {"_id": "c", "n": before})
