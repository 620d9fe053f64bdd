"""Celery: tasks that look at keys later."""
