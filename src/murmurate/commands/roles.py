"""`murmurate roles`: database roles for the processes of a service."""

from __future__ import annotations

from murmurate.commands.console import stderr, stdout, warn_of_open_schemas
from murmurate.service.storage.databases import Databases, mask_database_errors
from murmurate.service.storage.migrate import create_roles, migrate_database


def create_database_roles(databases: Databases) -> None:
    """Bring both databases to this version, create the roles that are missing, and give each its rights."""
    databases.check_reachable(prepared=False)
    with mask_database_errors():
        for database in (databases.state, databases.log):
            migrate_database(database.dsn, database.store)
            names = create_roles(database.dsn, database.store)
            stdout.print(f"{database.store}: {', '.join(names)}")
        warn_of_open_schemas(databases)
    stderr.print("The roles have no login. For each process: CREATE ROLE .. LOGIN PASSWORD .. IN ROLE ..;")
