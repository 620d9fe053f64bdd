"""SQLite, by the standard library's sqlite3."""
