"""The command line: `latchwork COMMAND`, one file a command."""
