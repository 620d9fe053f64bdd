"""Settings: the ledger names what it refuses, and shows no password."""

import pytest

from headway import ConfigurationError
from headway.systems.ledger.settings import LedgerSettings

SECRET = "s3cret"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("LEDGER_DATABASE_URL", f"mysql://u:{SECRET}@h/x"),
        ("LEDGER_DATABASE_URL", f"u:{SECRET}@h/x"),
        ("LEDGER_DATABASE_URL", f"postgresql://u:{SECRET}@h:port/x"),
        ("LEDGER_DATABASE_URL", f"host=h password={SECRET}"),
        ("LEDGER_DATABASE_URL", "sqlite://ledger.db"),
        ("LEDGER_DATABASE_URLS", f"postgresql://u:{SECRET}@h/x"),
        ("LEDGER_RETRY_ATTEMPTS", "0"),
        ("LEDGER_EXHAUSTED_STATUS", "502"),
        ("LEDGER_MAX_BODY_BYTES", "-1"),
        ("LEDGER_PORT", "70000"),
    ],
)
def test_a_setting_that_cannot_be_used_is_refused_by_name_without_its_password(
    name: str, value: str
) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        LedgerSettings.from_mapping({name: value})
    assert name in str(refusal.value)
    assert SECRET not in str(refusal.value)


def test_the_settings_in_force_are_shown_without_a_password() -> None:
    shown = LedgerSettings.from_mapping(
        {"LEDGER_DATABASE_URL": f"postgresql://u:{SECRET}@h/x"}
    ).in_force()
    assert shown.pop("LEDGER_DATABASE_URL") == "postgresql://u:***@h/x"
    assert shown == {
        "LEDGER_RETRY_ATTEMPTS": "5",
        "LEDGER_EXHAUSTED_STATUS": "500",
        "LEDGER_MAX_BODY_BYTES": "262144",
        "LEDGER_MAX_BULK_BYTES": "5242880",
        "LEDGER_MAX_BULK_EVENTS": "10000",
        "LEDGER_HOST": "127.0.0.1",
        "LEDGER_PORT": "8080",
    }
