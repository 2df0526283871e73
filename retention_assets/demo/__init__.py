"""The sample repositories of the demo."""
