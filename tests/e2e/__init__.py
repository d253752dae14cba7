"""The whole pipeline, from meter to client, with real servers."""
