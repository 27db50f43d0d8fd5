"""Watching loops: events of what each batch waited for (docs/events.md)."""
