"""The Jupyter server extension: thin handlers over the service."""
