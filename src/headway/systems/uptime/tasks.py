"""Looks at backlogs as tasks of Celery: `celery -A headway.systems.uptime.tasks worker`.

The settings are those of the consumer, UPTIME_*. A task goes to the backlog directly, and never
through the front door: there, what it takes out would be queued again.
"""

from headway.settings import environment
from headway.systems.uptime.scheduling import PROCESS_UPTIME_BACKLOG, celery_app
from headway.systems.uptime.settings import UptimeSettings

app = celery_app(UptimeSettings.from_mapping(environment()))
process_uptime_backlog = app.tasks[PROCESS_UPTIME_BACKLOG]
