"""What decides, and nothing else: standard library and `trainer_agent.wire`. Time, randomness and settings are arguments."""
