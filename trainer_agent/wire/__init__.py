"""The contract between the trainer agent and the server: standard library only, imported by both sides."""
