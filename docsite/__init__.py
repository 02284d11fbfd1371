"""Builds the documentation site from the Markdown files of the repository. See ``python -m docsite --help``."""
