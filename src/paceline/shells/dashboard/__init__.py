"""The dashboard: one page that reads the REST API with the viewer's token, and polls."""
