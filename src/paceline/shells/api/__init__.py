"""The REST API. Nothing is imported here, so that the command line can use its documents without its server."""
