"""The dashboard: one page that reads the REST API with the token of whoever looks at it, and polls."""
