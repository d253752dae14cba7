"""Programs that ask a question of research with murmurate. They are not part of the package that is installed."""
