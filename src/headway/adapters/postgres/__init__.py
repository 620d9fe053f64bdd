"""PostgreSQL, by asyncpg or by psycopg."""
