"""The server: api > services > store | outbound > domain > trainer_agent.wire (who may import whom)."""
