"""Settings: what is refused is refused by name, and no password is shown."""

from pathlib import Path

import pytest

from headway import ConfigurationError
from headway.systems.ledger.settings import LedgerSettings

SECRET = "s3cret"

REFUSED = {
    ("LEDGER_DATABASE_URL", "mysql://host/x"): "unsupported scheme 'mysql'",
    ("LEDGER_DATABASE_URL", "ledger.db"): "it is not a URL",
    ("LEDGER_DATABASE_URL", "sqlite://ledger.db"): "three slashes are needed",
    ("LEDGER_DATABASE_URL", "sqlite:///"): "it names no file",
    ("LEDGER_DATABASE_URL", "sqlite:///ledger#1.db"): "a # is written as %23",
    ("LEDGER_DATABASE_URL", "sqlite:///ledger?1.db"): "a ? is written as %3F",
    ("LEDGER_DATABASE_URL", "sqlite:///ledger.db?synchronous=off"): "no options for a file",
    ("LEDGER_DATABASE_URL", "mongodb://h/x"): "does not use MongoDB",
    ("LEDGER_DATABASE_URL", "postgresql:///x"): "it names no host",
    ("LEDGER_DATABASE_URL", "postgresql://u:p@h:port/x"): "its port is no number",
    ("LEDGER_RETRY_ATTEMPTS", "0"): "use a whole number from 1 to 100",
    ("LEDGER_RETRY_ATTEMPTS", "many"): "use a whole number from 1 to 100",
    ("LEDGER_EXHAUSTED_STATUS", "502"): "use 500 or 503",
    ("LEDGER_MAX_BODY_BYTES", "-1"): "use a whole number from 1024 to 1073741824",
    ("LEDGER_PORT", "70000"): "use a whole number from 0 to 65535",
    ("LEDGER_RETRY_ATTEMPT", "3"): "did you mean LEDGER_RETRY_ATTEMPTS?",
}


@pytest.mark.parametrize(("given", "cure"), REFUSED.items(), ids=str)
def test_a_setting_that_cannot_be_used_is_refused_by_name(
    given: tuple[str, str], cure: str
) -> None:
    name, value = given
    with pytest.raises(ConfigurationError) as refusal:
        LedgerSettings.from_mapping({name: value})
    assert name in str(refusal.value)
    assert cure in str(refusal.value)


def test_without_settings_it_is_a_file_on_this_machine() -> None:
    settings = LedgerSettings.from_mapping({})
    assert settings.in_force() == {
        "LEDGER_DATABASE_URL": "sqlite:///headway-ledger.db",
        "LEDGER_RETRY_ATTEMPTS": "5",
        "LEDGER_EXHAUSTED_STATUS": "500",
        "LEDGER_MAX_BODY_BYTES": "262144",
        "LEDGER_MAX_BULK_BYTES": "5242880",
        "LEDGER_MAX_BULK_EVENTS": "10000",
        "LEDGER_HOST": "127.0.0.1",
        "LEDGER_PORT": "8080",
    }
    assert settings.sqlite_path == Path("headway-ledger.db")


def test_a_path_from_the_root_has_four_slashes() -> None:
    settings = LedgerSettings(database_url="sqlite:////var/lib/a%20b.db")
    assert settings.sqlite_path == Path("/var/lib/a b.db")


@pytest.mark.parametrize(
    "settings",
    [
        {"LEDGER_DATABASE_URL": f"mysql://u:{SECRET}@h/x"},
        {"LEDGER_DATABASE_URL": f"postgresql://u:{SECRET}@h:p/x"},
        {"LEDGER_DATABASE_URL": f"postgresql:/u:{SECRET}@h/x"},
        {"LEDGER_DATABASE_URL": f"postgresql//u:{SECRET}@h/x"},
        {"LEDGER_DATABASE_URL": f"u:{SECRET}@h/x"},
        {"LEDGER_DATABASE_URL": f"host=h password={SECRET}"},
        {"LEDGER_DATABASE_URLS": f"postgresql://u:{SECRET}@h/x"},
    ],
)
def test_a_refusal_does_not_tell_the_password(settings: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        LedgerSettings.from_mapping(settings)
    assert SECRET not in str(refusal.value)


def test_settings_do_not_tell_the_password() -> None:
    settings = LedgerSettings(database_url=f"postgresql://u:{SECRET}@h/x")
    assert SECRET not in f"{settings!r} {settings.in_force()}"
