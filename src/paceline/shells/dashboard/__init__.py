"""The dashboard: pages that the server makes from the answers of the API."""
