"""What a sender is answered, on every database."""

import pytest

from tests.systems.ledger.ledgers import BULK, DATA, Ledger, an_event


@pytest.mark.parametrize("kind", DATA)
async def test_an_event_is_stored_and_can_be_looked_at(ledger: Ledger, kind: str) -> None:
    answer = await ledger.send(an_event(kind))
    assert answer.status_code == 201
    assert answer.json() == {"status": "stored", "event_id": "event-1", "already": False}
    shown = (await ledger.http.get("/api/v1/events/event-1")).json()
    assert shown.pop("stored_at")
    assert shown.pop("event_name")
    assert shown == an_event(kind)


async def test_each_event_changes_the_entity_it_is_about(ledger: Ledger) -> None:
    for number, kind in enumerate(reversed(DATA)):  # an event may come before its entity
        assert (await ledger.send(an_event(kind, event_id=f"e{number}"))).status_code == 201
        if kind == "LoanPaymentSubmitted":
            assert (await ledger.entity("loan-1"))["provisional"] is True
    assert await ledger.entity("car-1") == {
        "entity_id": "car-1",
        "kind": "car",
        "provisional": False,
        "price_cents": 900_000,
        "services": 1,
        "service_cents": 40_000,
    }
    assert await ledger.entity("loan-1") == {
        "entity_id": "loan-1",
        "kind": "loan",
        "provisional": False,
        "principal_cents": 500_000,
        "payments": 1,
        "paid_cents": 25_000,
        "balance_cents": 475_000,
    }
    totals = (await ledger.http.get("/api/v1/totals")).json()
    assert totals["exact"]
    assert totals["events"] == 4


async def test_an_event_without_an_id_sent_again_with_its_key_is_the_same(ledger: Ledger) -> None:
    event = an_event()
    del event["event_id"]
    first, second = await ledger.send(event, key="k"), await ledger.send(event, key="k")
    assert first.json()["event_id"] == second.json()["event_id"]
    assert (first.json()["already"], second.json()["already"]) == (False, True)
    assert (await ledger.entity("loan-1"))["payments"] == 1


@pytest.mark.parametrize("key", [None, "another"])
async def test_anybody_else_is_told_of_a_duplicate(ledger: Ledger, key: str | None) -> None:
    await ledger.send(an_event(), key="mine")
    again = await ledger.send(an_event(), key=key)
    assert again.status_code == 409
    body = again.json()
    assert (body["error"], body["event_id"], body["identical"]) == ("duplicate", "event-1", True)
    assert "retry-after" not in again.headers
    assert (await ledger.entity("loan-1"))["paid_cents"] == 25_000


@pytest.mark.parametrize("key", [None, "mine"])
async def test_an_id_taken_by_different_content_is_a_duplicate(
    ledger: Ledger, key: str | None
) -> None:
    """Even with the same key: a reused key must not pass one event off as another."""
    await ledger.send(an_event(), key="mine")
    again = await ledger.send(an_event(data={"amount_cents": 1}), key=key)
    assert (again.status_code, again.json()["identical"]) == (409, False)
    assert (await ledger.entity("loan-1"))["paid_cents"] == 25_000


async def test_a_duplicate_is_known_when_its_operation_row_is_gone(ledger: Ledger) -> None:
    await ledger.send(an_event(), key="mine")
    await ledger.rows("delete from headway_operations")
    assert (await ledger.send(an_event(), key="theirs")).status_code == 409
    own = await ledger.send(an_event(), key="mine")
    assert (own.status_code, own.json()["already"]) == (201, True)
    assert (await ledger.entity("loan-1"))["payments"] == 1
    assert await ledger.rows("select * from headway_operations") == []


async def test_an_event_that_does_not_fit_its_entity_is_refused(ledger: Ledger) -> None:
    await ledger.send(an_event("CarCreated", event_id="first"))
    second = await ledger.send(an_event("CarCreated", event_id="second"))
    assert (second.status_code, second.json()["field"]) == (422, "entity_id")
    payment = await ledger.send(an_event(entity_id="car-1", event_id="third"))  # on a car
    assert (payment.status_code, payment.json()["field"]) == (422, "entity_id")
    assert len(await ledger.rows("select * from ledger_events")) == 1
    assert len(await ledger.rows("select * from headway_operations")) == 1


async def test_one_bad_event_of_a_bulk_stops_no_other(ledger: Ledger) -> None:
    await ledger.send(an_event(event_id="taken"))
    events = [
        an_event(event_id="good"),
        an_event(event_id="bad", data={"amount_cents": -1}),
        an_event(event_id="taken"),
        "no event",
    ]
    answer = await ledger.http.post(BULK, json={"events": events})
    assert answer.status_code == 207
    results = answer.json()["results"]
    assert [each["status_code"] for each in results] == [201, 422, 409, 422]
    assert results[1]["field"] == "events[1].data.amount_cents"
    assert results[3]["field"] == "events[3]"
    assert (await ledger.entity("loan-1"))["payments"] == 2


async def test_a_bulk_sent_again_with_its_key_stores_nothing_twice(ledger: Ledger) -> None:
    events = [an_event(event_id="named"), an_event(), an_event()]
    del events[1]["event_id"], events[2]["event_id"]
    for already in (False, True):
        answer = await ledger.http.post(
            BULK, json={"events": events}, headers={"Idempotency-Key": "bulk-1"}
        )
        assert answer.status_code == 201
        assert [each["already"] for each in answer.json()["results"]] == [already] * 3
    assert (await ledger.entity("loan-1"))["payments"] == 3


async def test_two_events_with_one_id_in_a_bulk_are_not_taken_for_one(ledger: Ledger) -> None:
    events = [an_event(), an_event(data={"amount_cents": 7})]
    answer = await ledger.http.post(
        BULK, json={"events": events}, headers={"Idempotency-Key": "bulk-1"}
    )
    assert answer.status_code == 207
    assert sorted(each["status_code"] for each in answer.json()["results"]) == [201, 409]
    assert (await ledger.entity("loan-1"))["payments"] == 1


async def test_lists_go_on_behind_the_last_id(ledger: Ledger) -> None:
    for number in range(3):
        await ledger.send(an_event(event_id=f"e-{number}", entity_id=f"Loan_{number}"))
    page = (await ledger.http.get("/api/v1/events?limit=2")).json()["events"]
    assert [row["event_id"] for row in page] == ["e-0", "e-1"]
    rest = (await ledger.http.get("/api/v1/events?after=e-1")).json()["events"]
    assert [row["event_id"] for row in rest] == ["e-2"]
    entities = (await ledger.http.get("/api/v1/entities?after=Loan_0")).json()["entities"]
    assert [row["entity_id"] for row in entities] == ["Loan_1", "Loan_2"]


@pytest.mark.parametrize("path", ["/api/v1/events/none", "/api/v1/entities/%00", "/nowhere"])
async def test_what_is_not_there_is_not_found(ledger: Ledger, path: str) -> None:
    answer = await ledger.http.get(path)
    assert (answer.status_code, answer.json()["error"]) == (404, "not_found")


async def test_events_are_counted_by_what_became_of_them(ledger: Ledger) -> None:
    await ledger.send(an_event())
    await ledger.send(an_event())
    await ledger.send({})
    kind = "LoanPaymentSubmitted"
    counts = [
        await ledger.sample("ledger_events_total", event_type=kind, outcome="stored"),
        await ledger.sample("ledger_events_total", event_type=kind, outcome="duplicate"),
        await ledger.sample("ledger_events_total", event_type="unknown", outcome="invalid"),
        await ledger.sample("ledger_request_seconds_count", form="single"),
    ]
    assert counts == [1, 1, 1, 3]
