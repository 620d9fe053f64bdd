"""By which rules the documents of a collection are judged."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

import typer

from headway.assembly.loading import load_services
from headway.assembly.settings import environment, named_services, sweep_settings
from headway.core.decision import archive_of, archived_from
from headway.core.errors import ConfigurationError
from headway.core.lifecycle import Lifecycle
from headway.core.showing import shown
from headway.core.suggestion import suggestion
from headway.core.sweep import SweepRule
from headway.core.sweep_settings import SweepSettings
from headway.runtime.documents import RuleOf, TargetOf
from headway.runtime.service import Service
from headway.runtime.sweep_targets import find_targets


def rules_of(names: Sequence[str], given: Mapping[str, str] | None = None) -> RuleOf:
    """Give what finds the rule of a collection: as services declare it, or else the usual one.

    Without names, the services are those of HEADWAY_SERVICES, if there are any.
    """
    given = environment() if given is None else given
    settings = SweepSettings.from_mapping(given)
    named = names or named_services(given)
    declared = _declared(load_services(named))
    if named:  # else nobody knows what there is
        settings.refuse_misspelt(declared)

    def rule_of(collection: str) -> SweepRule:
        if collection in declared:
            return settings.rule(declared[collection])
        if names:
            raise ConfigurationError(_unknown(collection, declared))
        return settings.rule(Lifecycle(collection))

    return rule_of


def targets_of(names: Sequence[str]) -> TargetOf:
    """Give what finds the handler to which a sweep sends what is stuck in a collection."""
    services = load_services(names or named_services())
    try:
        targets = {each.collection: each for each in find_targets(services, sweep_settings())}
    except ConfigurationError as error:
        targets = {}
        if any(each.documents for service in services for each in service.subscriptions.values()):
            typer.echo(f"headway: these services cannot be swept: {error}", err=True)
    return targets.get


def is_declared(names: Sequence[str], collection: str) -> bool:
    """Say whether a service says how the documents of a collection say where they are."""
    return collection in _declared(load_services(names or named_services()))


def are_named(names: Sequence[str]) -> bool:
    """Say whether any service is known: without one nobody can tell what is swept, and how."""
    return bool(names or named_services())


def swept_by(names: Sequence[str], target_of: TargetOf) -> Callable[[str], bool]:
    """Give what says whether anybody sweeps a collection: nobody can tell without any service."""
    is_known = are_named(names)

    def is_swept(collection: str) -> bool:
        of = archived_from(collection)  # which is said of an archive in other words
        return not is_known or of is not None or target_of(collection) is not None

    return is_swept


def _declared(services: Sequence[Service]) -> Mapping[str, Lifecycle]:
    """Give the lifecycles by collection; of several, as the sweeper does, whose event is sent."""
    found = [each for one in services for each in one.lifecycles_by_name.values()]
    handlers = [each for one in services for each in one.subscriptions.values()]
    handlers.sort(key=lambda handler: handler.rebuild is not None)
    found += [each.lifecycle for each in handlers if each.lifecycle is not None]
    archives = [replace(each, collection=archive_of(each.collection)) for each in found]
    return {each.collection: each for each in archives + found}


def _unknown(collection: str, known: Collection[str]) -> str:
    return (
        f"Invalid collection {shown(collection)!r}: none of the services that were named works on "
        f"it; {suggestion(collection, sorted(known)) if known else 'they work on none'}"
    )
